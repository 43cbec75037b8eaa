-- Writes a batch and moves the cursor: all of it in the one transaction that a single statement is.
--   $1 to $4    job_id, first_seq, number and body of the entries, a list each
--   $5 to $18   the columns of regista_jobs, a list each; each job once
--   $19 to $22  name, key, created_at and job_id of the rows of regista_attributes, a list each
--   $23         the highest number among the entries
-- `moved` is joined to all the others, so the row of the cursor is locked before anything is written: recorders take
-- turns. Rows that another recorder wrote in the meantime are conflicts, seen or not, and left alone, unless they are
-- older: from its first seq on, an entry supersedes lower numbers. Whatever the server's default is, the commit is
-- answered when it is on the disk: what can be read is safe, and `sync` has nothing to do.
WITH moved AS (
    UPDATE regista_cursor
    SET value = greatest(regista_cursor.value, $23::BIGINT)
    FROM (SELECT value AS before FROM regista_cursor FOR UPDATE) AS old
    RETURNING value, old.before, set_config('synchronous_commit', 'on', true)
),
given AS MATERIALIZED (
    SELECT moved.before, new.job_id, new.first_seq, new.number, new.body
    FROM moved, unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) AS new (job_id, first_seq, number, body)
),
superseded AS (
    DELETE FROM regista_entries
    -- By their places in the table, found one index look-up at a time: whatever the planner thinks of new tables.
    WHERE ctid = ANY (
        ARRAY(
            SELECT old.ctid
            FROM given
            CROSS JOIN LATERAL (
                SELECT ctid
                FROM regista_entries
                WHERE job_id = given.job_id AND first_seq > given.first_seq AND number < given.number
                OFFSET 0
            ) AS old
        )
    )
),
written AS (
    INSERT INTO regista_entries AS known (job_id, first_seq, number, body)
    SELECT given.job_id, given.first_seq, given.number, given.body
    FROM given
    -- An entry that comes late may have been superseded since: then the last entry before it is newer.
    WHERE
        given.number > given.before
        OR coalesce(
            (
                SELECT old.number
                FROM regista_entries AS old
                WHERE old.job_id = given.job_id AND old.first_seq <= given.first_seq
                ORDER BY old.first_seq DESC
                LIMIT 1
            ), 0
        ) <= given.number
    ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body
    WHERE excluded.number > known.number
),
listed AS (
    INSERT INTO regista_jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes, words
    )
    SELECT
        new.job_id, new.number, new.client, new.blueprint, new.version, new.status, new.state,
        new.created_at, new.updated_at, new.finished_at, new.parent_id, new.error_code, new.attributes::JSONB, new.words
    FROM moved, unnest(
        $5::TEXT[], $6::BIGINT[], $7::TEXT[], $8::TEXT[], $9::TEXT[], $10::TEXT[], $11::TEXT[],
        $12::BIGINT[], $13::BIGINT[], $14::BIGINT[], $15::TEXT[], $16::TEXT[], $17::TEXT[], $18::TEXT[]
    ) AS new (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, attributes, words
    )
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
        search_attributes = excluded.search_attributes,
        words             = excluded.words
    WHERE excluded.number > regista_jobs.number
),
indexed AS (
    INSERT INTO regista_attributes (name, key, created_at, job_id)
    SELECT new.name, new.key, new.created_at, new.job_id
    FROM moved, unnest($19::TEXT[], $20::TEXT[], $21::BIGINT[], $22::TEXT[]) AS new (name, key, created_at, job_id)
    ON CONFLICT DO NOTHING
)
SELECT value FROM moved
