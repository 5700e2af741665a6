-- +goose Up
-- What is mirrored of the account, as JSON (consumers.Scope; empty: everything): as configured, and with the ids of its
-- labels, which is the rule.
ALTER TABLE accounts ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE accounts ADD COLUMN scope_rule TEXT NOT NULL DEFAULT '';
-- 1: the message is outside the scope. Then deleted is 1 too, and of the content label_ids are kept.
ALTER TABLE messages ADD COLUMN outside INTEGER NOT NULL DEFAULT 0;
