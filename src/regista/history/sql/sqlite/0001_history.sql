-- What happened, where each job stands, and how far the recorder has come. Times are microseconds since 1970, UTC.

-- One row per commit. Ordered ids and no rowid keep the rows of the newest jobs side by side.
CREATE TABLE regista_entries (
    job_id    TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    PRIMARY KEY (job_id, first_seq)
) WITHOUT ROWID;

-- Numbers only grow, so the index does too, at its end.
CREATE INDEX regista_entries_by_number ON regista_entries (number);

-- One row per job, for lists and searches.
CREATE TABLE regista_jobs (
    job_id            TEXT    NOT NULL PRIMARY KEY,
    -- The entry that wrote the row: an older one must not overwrite a newer one.
    number            INTEGER NOT NULL,
    client            TEXT    NOT NULL,
    blueprint         TEXT    NOT NULL,
    version           TEXT    NOT NULL,
    status            TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    finished_at       INTEGER,
    parent_id         TEXT,
    error_code        TEXT,
    search_attributes TEXT    NOT NULL DEFAULT '{}',
    -- The words of the job's texts, each as ' Name:word '.
    words             TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Lists are newest first by the time of creation: an id that follows from an idempotency key says nothing about time.
CREATE INDEX regista_jobs_by_client ON regista_jobs (client, created_at, job_id);
CREATE INDEX regista_jobs_by_blueprint ON regista_jobs (blueprint, created_at, job_id);
CREATE INDEX regista_jobs_by_time ON regista_jobs (created_at, job_id);
-- Live and troubled jobs are few; the many that finished are not worth an entry.
CREATE INDEX regista_jobs_unfinished ON regista_jobs (status, created_at, job_id) WHERE status <> 'finished';

-- What values lead to which jobs, newest last. Whether a job has the value is always checked on its row: a key that
-- it no longer has leads nowhere.
CREATE TABLE regista_attributes (
    name       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    job_id     TEXT    NOT NULL,
    PRIMARY KEY (name, key, created_at, job_id)
) WITHOUT ROWID;

-- Entries that could not be written, kept apart so that they hold no other back.
CREATE TABLE regista_rejected (
    number INTEGER NOT NULL,
    job_id TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    body   BLOB    NOT NULL
);

CREATE TABLE regista_cursor (
    id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    value INTEGER NOT NULL DEFAULT 0
);

INSERT INTO regista_cursor (id) VALUES (1);

-- An entry with a higher number supersedes what lower ones recorded from its first seq on. That happens when a store
-- lost its last moments, or when the key of a job that it forgot is used again. These jobs are noted for the rest of
-- the batch.
CREATE TABLE regista_superseded (job_id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;

CREATE TRIGGER regista_entry_updated AFTER UPDATE OF number ON regista_entries
BEGIN
    DELETE FROM regista_entries WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    INSERT OR IGNORE INTO regista_superseded (job_id) VALUES (new.job_id);
END;

CREATE TRIGGER regista_entry_inserted AFTER INSERT ON regista_entries
WHEN EXISTS (SELECT 1 FROM regista_entries WHERE job_id = new.job_id AND first_seq > new.first_seq)
BEGIN
    DELETE FROM regista_entries WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    INSERT OR IGNORE INTO regista_superseded (job_id) VALUES (new.job_id);
END;
