-- +goose Up
-- When the last resync started, until history has been read again: a cursor too old meanwhile is an alarm. 0: none.
ALTER TABLE accounts ADD COLUMN resync_at BIGINT NOT NULL DEFAULT 0;
-- "incomplete: n" follows from the dead letters.
UPDATE accounts SET reason = '' WHERE reason LIKE 'incomplete: %';
