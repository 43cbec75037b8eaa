-- The first schema: what happened, where each job stands, and how far the recorder has come.

-- One row per commit. Ordered ids and no rowid keep the rows of the newest jobs side by side.
CREATE TABLE entries (
    job_id    TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    PRIMARY KEY (job_id, first_seq)
) WITHOUT ROWID;

-- One row per job, for lists and searches. Times are seconds since 1970, UTC.
CREATE TABLE jobs (
    job_id            TEXT    NOT NULL PRIMARY KEY,
    -- The entry that wrote the row: an older one must not overwrite a newer one.
    number            INTEGER NOT NULL,
    client            TEXT    NOT NULL,
    blueprint         TEXT    NOT NULL,
    version           TEXT    NOT NULL,
    status            TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    created_at        REAL    NOT NULL,
    updated_at        REAL    NOT NULL,
    finished_at       REAL,
    parent_id         TEXT,
    error_code        TEXT,
    search_attributes TEXT    NOT NULL DEFAULT '{}'
) WITHOUT ROWID;

-- A client lists its own jobs, newest id first.
CREATE INDEX jobs_by_client ON jobs (client, job_id);

-- Live and troubled jobs are few; the many that finished are not worth an entry.
CREATE INDEX jobs_unfinished ON jobs (status, job_id) WHERE status <> 'finished';

CREATE TABLE meta (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('cursor', 0);

-- The door for `record`: one INSERT into this view writes a whole batch, so that Python gives up the
-- GIL once per batch and not once per row. It never has rows.
--   entries  JSON, [[job_id, first_seq, number, start, length], ...]
--   bodies   the bodies of all entries, one after the other; `start` counts from 1
--   jobs     JSON, the rows of `jobs` as lists, in the order of its columns, each job once
--   cursor   the highest number among the entries
CREATE VIEW batches (entries, bodies, jobs, cursor) AS SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER record_batch INSTEAD OF INSERT ON batches
BEGIN
    INSERT INTO entries (job_id, first_seq, number, body)
    SELECT
        row.value ->> 0,
        row.value ->> 1,
        row.value ->> 2,
        substr(new.bodies, row.value ->> 3, row.value ->> 4)
    FROM json_each(new.entries) AS row
    WHERE true  -- or the parser takes ON for the condition of a join
    ON CONFLICT (job_id, first_seq) DO NOTHING;

    INSERT INTO jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes
    )
    SELECT
        row.value ->> 0,
        row.value ->> 1,
        row.value ->> 2,
        row.value ->> 3,
        row.value ->> 4,
        row.value ->> 5,
        row.value ->> 6,
        row.value ->> 7,
        row.value ->> 8,
        row.value ->> 9,
        row.value ->> 10,
        row.value ->> 11,
        row.value ->> 12
    FROM json_each(new.jobs) AS row
    WHERE true
    ON CONFLICT (job_id) DO UPDATE SET
        number            = excluded.number,
        client            = excluded.client,
        blueprint         = excluded.blueprint,
        version           = excluded.version,
        status            = excluded.status,
        state             = excluded.state,
        created_at        = excluded.created_at,
        updated_at        = excluded.updated_at,
        finished_at       = excluded.finished_at,
        parent_id         = excluded.parent_id,
        error_code        = excluded.error_code,
        search_attributes = excluded.search_attributes
    WHERE excluded.number > jobs.number;

    UPDATE meta SET value = new.cursor WHERE name = 'cursor' AND value < new.cursor;
END;
