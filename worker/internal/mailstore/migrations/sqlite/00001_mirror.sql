-- History ids are 20 decimal digits (mailstore.HistoryText), times milliseconds since 1970 UTC with 0 for none, flags
-- 0 or 1. "due" is when the sweeper publishes the row's job again.

-- +goose Up
CREATE TABLE accounts (
    id                TEXT    NOT NULL PRIMARY KEY, -- the stable account id
    address           TEXT    NOT NULL,             -- lower case; empty once another account has taken it over
    state             TEXT    NOT NULL,
    reason            TEXT    NOT NULL DEFAULT '',
    cursor_history_id TEXT    NOT NULL DEFAULT '00000000000000000000',
    watch_expires     BIGINT  NOT NULL DEFAULT 0,
    history_at        BIGINT  NOT NULL DEFAULT 0,
    due               BIGINT  NOT NULL DEFAULT 0    -- of history; before the first run of its first job
);
CREATE UNIQUE INDEX accounts_address ON accounts (address) WHERE address <> '';
CREATE INDEX accounts_due ON accounts (due);
CREATE INDEX accounts_watch ON accounts (watch_expires);

CREATE TABLE tokens (
    account_id TEXT   NOT NULL PRIMARY KEY REFERENCES accounts (id),
    refresh    BLOB,             -- encrypted
    access     BLOB,             -- encrypted
    expires    BIGINT NOT NULL,  -- of the access token
    version    BIGINT NOT NULL
);

CREATE TABLE runs (
    id                  TEXT    NOT NULL PRIMARY KEY,
    account_id          TEXT    NOT NULL REFERENCES accounts (id),
    kind                TEXT    NOT NULL,
    baseline_history_id TEXT    NOT NULL DEFAULT '00000000000000000000',
    page_token          TEXT    NOT NULL DEFAULT '',
    listed              INTEGER NOT NULL DEFAULT 0,
    absent_queued       INTEGER NOT NULL DEFAULT 0,
    threads_listed      BIGINT  NOT NULL DEFAULT 0,
    threads_stored      BIGINT  NOT NULL DEFAULT 0,
    threads_gone        BIGINT  NOT NULL DEFAULT 0,
    threads_failed      BIGINT  NOT NULL DEFAULT 0,
    due                 BIGINT  NOT NULL,
    started_at          BIGINT  NOT NULL,
    finished_at         BIGINT  NOT NULL DEFAULT 0  -- 0: the active run
);
CREATE UNIQUE INDEX runs_active ON runs (account_id) WHERE finished_at = 0;
CREATE INDEX runs_account ON runs (account_id, started_at);

-- AUTOINCREMENT: an id is never used again, so that a late job cannot meet another batch.
CREATE TABLE batches (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id     TEXT   NOT NULL REFERENCES runs (id),
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    state      TEXT   NOT NULL,             -- pending or working; a finished batch has no row
    due        BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX batches_run ON batches (run_id, state);
CREATE INDEX batches_account ON batches (account_id);
CREATE INDEX batches_due ON batches (due) WHERE state = 'working';

-- The threads of active runs; a finished run keeps only its counts.
CREATE TABLE run_threads (
    run_id    TEXT    NOT NULL REFERENCES runs (id),
    thread_id TEXT    NOT NULL,
    batch_id  BIGINT  NOT NULL,             -- 0: needed no fetch
    state     TEXT    NOT NULL,             -- open, stored, gone or failed
    attempts  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, thread_id)
) WITHOUT ROWID;
CREATE INDEX run_threads_open ON run_threads (batch_id) WHERE state = 'open';

CREATE TABLE threads (
    account_id          TEXT    NOT NULL REFERENCES accounts (id),
    id                  TEXT    NOT NULL,
    history_id          TEXT    NOT NULL,   -- the last known change of the thread
    snapshot_history_id TEXT    NOT NULL,   -- of the newest whole snapshot stored
    complete            INTEGER NOT NULL,   -- a whole snapshot was stored; see also wants and fetches
    message_count       INTEGER NOT NULL,   -- not deleted ones; 0: the thread is deleted
    PRIMARY KEY (account_id, id)
) WITHOUT ROWID;

-- A deleted message keeps its row without content, so that an older snapshot cannot bring it back.
CREATE TABLE messages (
    account_id     TEXT    NOT NULL REFERENCES accounts (id),
    id             TEXT    NOT NULL,
    thread_id      TEXT    NOT NULL,
    history_id     TEXT    NOT NULL,
    deleted        INTEGER NOT NULL DEFAULT 0,
    internal_date  BIGINT,
    size_estimate  BIGINT  NOT NULL DEFAULT 0,
    label_ids      TEXT    NOT NULL DEFAULT '[]', -- JSON array, sorted
    rfc_message_id TEXT    NOT NULL DEFAULT '',
    from_header    TEXT    NOT NULL DEFAULT '',
    to_header      TEXT    NOT NULL DEFAULT '',
    cc_header      TEXT    NOT NULL DEFAULT '',
    subject        TEXT    NOT NULL DEFAULT '',
    date_header    BIGINT,                        -- NULL: absent or unreadable
    snippet        TEXT    NOT NULL DEFAULT '',
    cleaned        INTEGER NOT NULL DEFAULT 0,
    body_missing   INTEGER NOT NULL DEFAULT 0,
    body_text      TEXT    NOT NULL DEFAULT '',
    body_html      TEXT    NOT NULL DEFAULT '',
    raw            BLOB,                          -- all that Gmail returned: JSON, zstd
    PRIMARY KEY (account_id, id)
);
CREATE INDEX messages_thread ON messages (account_id, thread_id, deleted);

CREATE TABLE attachments (
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    message_id TEXT    NOT NULL,
    part_id    TEXT    NOT NULL,
    filename   TEXT    NOT NULL,
    mime_type  TEXT    NOT NULL,
    content_id TEXT    NOT NULL,
    inline     INTEGER NOT NULL,
    size       BIGINT  NOT NULL,            -- decoded bytes
    PRIMARY KEY (account_id, message_id, part_id)
) WITHOUT ROWID;

CREATE TABLE labels (
    account_id TEXT NOT NULL REFERENCES accounts (id),
    id         TEXT NOT NULL,
    name       TEXT NOT NULL,
    type       TEXT NOT NULL,
    PRIMARY KEY (account_id, id)
) WITHOUT ROWID;

-- Messages that history named and that are not stored, because the active run is to bring them or because they were given
-- up. Only a snapshot as new as the record, or a row of the message, makes their thread whole.
CREATE TABLE wants (
    account_id TEXT NOT NULL REFERENCES accounts (id),
    thread_id  TEXT NOT NULL,
    message_id TEXT NOT NULL,
    history_id TEXT NOT NULL,               -- of the newest record that named it
    PRIMARY KEY (account_id, thread_id, message_id)
) WITHOUT ROWID;

-- The retry list: messages that history named and that could not be fetched yet.
CREATE TABLE fetches (
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    message_id TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    history_id TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    due        BIGINT  NOT NULL,
    cause      TEXT    NOT NULL,
    PRIMARY KEY (account_id, message_id)
) WITHOUT ROWID;
CREATE INDEX fetches_due ON fetches (account_id, due);
CREATE INDEX fetches_thread ON fetches (account_id, thread_id);

CREATE TABLE dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id TEXT    NOT NULL REFERENCES accounts (id),
    kind       TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    cause      TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    at         BIGINT  NOT NULL
);
CREATE INDEX dead_letters_account ON dead_letters (account_id);
