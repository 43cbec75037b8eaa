-- Search: what leads to jobs by their attributes, and a story that is told anew takes the place of the old one.

-- The words of a job's texts, each as ' Name:word ', so that one can be looked for without a tokenizer in SQL.
ALTER TABLE jobs ADD COLUMN words TEXT NOT NULL DEFAULT '';

-- For operators, who look for the jobs of one blueprint among everybody's.
CREATE INDEX jobs_by_blueprint ON jobs (blueprint, created_at, job_id);

-- What values lead to which jobs, newest last. Whether a job has the value is always asked of its row: a key that
-- it no longer has leads nowhere, and does no harm.
CREATE TABLE attributes (
    name       TEXT NOT NULL,
    key        TEXT NOT NULL,
    created_at REAL NOT NULL,
    job_id     TEXT NOT NULL,
    PRIMARY KEY (name, key, created_at, job_id)
) WITHOUT ROWID;

-- Entries that could not be written, so that they kept no other out.
CREATE TABLE set_aside (
    number INTEGER NOT NULL,
    job_id TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    body   BLOB    NOT NULL
);

-- An entry with a higher number is the newer word: from its first seq on, it takes the place of what older ones told.
-- That happens when a store forgot its last moments, or when the key of a job that it forgot is used again. These jobs
-- are noted for the rest of the batch.
CREATE TABLE retold (job_id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;

CREATE TRIGGER entry_retold AFTER UPDATE OF number ON entries
BEGIN
    DELETE FROM entries WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    INSERT OR IGNORE INTO retold (job_id) VALUES (new.job_id);
END;

CREATE TRIGGER entry_told AFTER INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE job_id = new.job_id AND first_seq > new.first_seq)
BEGIN
    DELETE FROM entries WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    INSERT OR IGNORE INTO retold (job_id) VALUES (new.job_id);
END;

-- The door for `record`, as before, with the keys:
--   keys     JSON, the rows of `attributes` as lists
--   lowest   the lowest number among the entries
DROP VIEW batches;
CREATE VIEW batches (entries, bodies, jobs, keys, lowest, cursor) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER record_batch INSTEAD OF INSERT ON batches
BEGIN
    INSERT INTO entries (job_id, first_seq, number, body)
    SELECT
        row.value ->> 0,
        row.value ->> 1,
        row.value ->> 2,
        substr(new.bodies, row.value ->> 3, row.value ->> 4)
    FROM json_each(new.entries) AS row
    -- What comes late may belong to a story that was told anew since: then the last entry before it is newer.
    WHERE
        new.lowest > (SELECT value FROM meta WHERE name = 'cursor')
        OR coalesce(
            (
                SELECT old.number
                FROM entries AS old
                WHERE old.job_id = row.value ->> 0 AND old.first_seq <= row.value ->> 1
                ORDER BY old.first_seq DESC
                LIMIT 1
            ), 0
        ) <= row.value ->> 2
    ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body
    WHERE excluded.number > entries.number;

    INSERT INTO jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes, words
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
        row.value ->> 12,
        row.value ->> 13
    FROM json_each(new.jobs) AS row
    WHERE true  -- or the parser takes ON for the condition of a join
    ON CONFLICT (job_id) DO UPDATE SET
        number            = excluded.number,
        version           = excluded.version,
        status            = excluded.status,
        state             = excluded.state,
        updated_at        = excluded.updated_at,
        finished_at       = excluded.finished_at,
        error_code        = excluded.error_code,
        search_attributes = excluded.search_attributes,
        words             = excluded.words
    WHERE excluded.number > jobs.number;

    -- What never changes about a job is written once, for the sake of its indexes; but for one that was told anew.
    UPDATE jobs
    SET
        client     = fresh.client,
        blueprint  = fresh.blueprint,
        created_at = fresh.created_at,
        parent_id  = fresh.parent_id
    FROM (
        SELECT
            retold.job_id,
            row.value ->> 1 AS number,
            row.value ->> 2 AS client,
            row.value ->> 3 AS blueprint,
            row.value ->> 7 AS created_at,
            row.value ->> 10 AS parent_id
        FROM retold
        CROSS JOIN json_each(new.jobs) AS row ON row.value ->> 0 = retold.job_id
    ) AS fresh
    WHERE jobs.job_id = fresh.job_id AND jobs.number = fresh.number;

    DELETE FROM retold;

    INSERT OR IGNORE INTO attributes (name, key, created_at, job_id)
    SELECT row.value ->> 0, row.value ->> 1, row.value ->> 2, row.value ->> 3
    FROM json_each(new.keys) AS row;

    UPDATE meta SET value = new.cursor WHERE name = 'cursor' AND value < new.cursor;
END;
