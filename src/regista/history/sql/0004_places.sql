-- As in 0003, but cheaper. `->>` looks a value up in the text of its row, which json_each wrote out for it: with fourteen
-- columns a job, that was most of a batch. And a job that was told anew was looked for among all jobs, with every batch.
DROP VIEW batches;

-- The door for `record`:
--   entries  JSON, an object: 19 digits of number, 10 of first_seq and the job_id → the place of the body,
--            which is offset << 30 | length; no value of SQLite is as long as 1 << 30
--   bodies   the bodies of all entries, one after the other; an offset counts from 1
--   kinds    JSON, what several jobs have in common, said once: [[client, blueprint, version, status, state, parent_id,
--            error_code, search_attributes, words, whether they are finished, {job_id: offset in `moments`}], ...]
--   moments  for each job 19 digits of its number, and 18 each of the microseconds of created_at, updated_at, finished_at
--   keys     JSON, the rows of `attributes` as lists, but created_at in microseconds
--   lowest   the lowest number among the entries
--   cursor   the highest one
CREATE VIEW batches (entries, bodies, kinds, moments, keys, lowest, cursor) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER record_batch INSTEAD OF INSERT ON batches
BEGIN
    INSERT INTO entries (job_id, first_seq, number, body)
    SELECT
        substr(row.key, 30),
        CAST(substr(row.key, 20, 10) AS INTEGER),
        CAST(substr(row.key, 1, 19) AS INTEGER),
        substr(new.bodies, row.value >> 30, row.value & 0x3fffffff)
    FROM json_each(new.entries) AS row
    -- What comes late may belong to a story that was told anew since: then the last entry before it is newer.
    WHERE
        new.lowest > (SELECT value FROM meta WHERE name = 'cursor')
        OR coalesce(
            (
                SELECT old.number
                FROM entries AS old
                WHERE
                    old.job_id = substr(row.key, 30)
                    AND old.first_seq <= CAST(substr(row.key, 20, 10) AS INTEGER)
                ORDER BY old.first_seq DESC
                LIMIT 1
            ), 0
        ) <= CAST(substr(row.key, 1, 19) AS INTEGER)
    ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body
    WHERE excluded.number > entries.number;

    -- What never changes about a job is written once, for the sake of its indexes. So the row of one that was told anew
    -- goes, where there is a newer one.
    DELETE FROM jobs
    WHERE
        job_id IN (SELECT retold.job_id FROM retold)
        AND number < (
            SELECT CAST(substr(new.moments, member.value, 19) AS INTEGER)
            FROM json_each(new.kinds) AS kind CROSS JOIN json_each(kind.value ->> 10) AS member
            WHERE member.key = jobs.job_id
        );

    DELETE FROM retold;

    INSERT INTO jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes, words
    )
    SELECT
        member.key,
        CAST(substr(new.moments, member.value, 19) AS INTEGER),
        kind.client,
        kind.blueprint,
        kind.version,
        kind.status,
        kind.state,
        CAST(substr(new.moments, member.value + 19, 18) AS INTEGER) / 1e6,
        CAST(substr(new.moments, member.value + 37, 18) AS INTEGER) / 1e6,
        CASE WHEN kind.finished THEN CAST(substr(new.moments, member.value + 55, 18) AS INTEGER) / 1e6 END,
        kind.parent_id,
        kind.error_code,
        kind.search_attributes,
        kind.words
    FROM (
        SELECT
            row.value ->> 0 AS client,
            row.value ->> 1 AS blueprint,
            row.value ->> 2 AS version,
            row.value ->> 3 AS status,
            row.value ->> 4 AS state,
            row.value ->> 5 AS parent_id,
            row.value ->> 6 AS error_code,
            row.value ->> 7 AS search_attributes,
            row.value ->> 8 AS words,
            row.value ->> 9 AS finished,
            row.value ->> 10 AS members
        FROM json_each(new.kinds) AS row
        LIMIT -1  -- keeps it whole: else all of this would be looked up for each member
    ) AS kind
    CROSS JOIN json_each(kind.members) AS member
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

    INSERT OR IGNORE INTO attributes (name, key, created_at, job_id)
    SELECT row.value ->> 0, row.value ->> 1, (row.value ->> 2) / 1e6, row.value ->> 3
    FROM json_each(new.keys) AS row;

    UPDATE meta SET value = new.cursor WHERE name = 'cursor' AND value < new.cursor;
END;
