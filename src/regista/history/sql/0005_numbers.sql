-- As in 0004, but cheaper to make: a list of numbers as JSON costs Python less than half of what it takes to give them
-- leading zeros. So they come as lists, each number with 2e18 added, which makes every one 19 digits long, and with
-- its comma 20 bytes; the first one begins at byte 2.
DROP VIEW batches;

-- The door for `record`:
--   entries  JSON, the job_id of each entry
--   heads    numbers, four for each entry: its number, its first_seq, the offset and the length of its body
--   bodies   the bodies of all entries, one after the other; an offset counts from 1
--   kinds    JSON, what several jobs have in common, said once: [[client, blueprint, version, status, state, parent_id,
--            error_code, search_attributes, words, whether they are finished, {job_id: offset in `moments`}], ...]
--   moments  numbers, four for each job: its number, and the microseconds of created_at, updated_at, finished_at
--   keys     JSON, the rows of `attributes` as lists, but created_at in microseconds
--   lowest   the lowest number among the entries
--   cursor   the highest one
CREATE VIEW batches (entries, heads, bodies, kinds, moments, keys, lowest, cursor) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER record_batch INSTEAD OF INSERT ON batches
BEGIN
    INSERT INTO entries (job_id, first_seq, number, body)
    SELECT
        row.value,
        CAST(substr(new.heads, row.key * 80 + 22, 19) AS INTEGER) - 2000000000000000000,
        CAST(substr(new.heads, row.key * 80 + 2, 19) AS INTEGER) - 2000000000000000000,
        substr(
            new.bodies,
            CAST(substr(new.heads, row.key * 80 + 42, 19) AS INTEGER) - 2000000000000000000,
            CAST(substr(new.heads, row.key * 80 + 62, 19) AS INTEGER) - 2000000000000000000
        )
    FROM json_each(new.entries) AS row
    -- What comes late may belong to a story that was told anew since: then the last entry before it is newer.
    WHERE
        new.lowest > (SELECT value FROM meta WHERE name = 'cursor')
        OR coalesce(
            (
                SELECT old.number
                FROM entries AS old
                WHERE
                    old.job_id = row.value
                    AND old.first_seq <= CAST(substr(new.heads, row.key * 80 + 22, 19) AS INTEGER) - 2000000000000000000
                ORDER BY old.first_seq DESC
                LIMIT 1
            ), 0
        ) <= CAST(substr(new.heads, row.key * 80 + 2, 19) AS INTEGER) - 2000000000000000000
    ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body
    WHERE excluded.number > entries.number;

    -- What never changes about a job is written once, for the sake of its indexes. So the row of one that was told anew
    -- goes, where there is a newer one.
    DELETE FROM jobs
    WHERE
        job_id IN (SELECT retold.job_id FROM retold)
        AND number < (
            SELECT CAST(substr(new.moments, member.value, 19) AS INTEGER) - 2000000000000000000
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
        CAST(substr(new.moments, member.value, 19) AS INTEGER) - 2000000000000000000,
        kind.client,
        kind.blueprint,
        kind.version,
        kind.status,
        kind.state,
        (CAST(substr(new.moments, member.value + 20, 19) AS INTEGER) - 2000000000000000000) / 1e6,
        (CAST(substr(new.moments, member.value + 40, 19) AS INTEGER) - 2000000000000000000) / 1e6,
        CASE
            WHEN kind.finished
                THEN (CAST(substr(new.moments, member.value + 60, 19) AS INTEGER) - 2000000000000000000) / 1e6
        END,
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
