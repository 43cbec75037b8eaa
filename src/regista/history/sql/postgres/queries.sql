-- What the PostgreSQL history asks its server.

-- name: migrations
-- Which steps a database has seen. In the first schema of the search path, as everything else.
CREATE TABLE regista_migrations (
    number     INTEGER     NOT NULL PRIMARY KEY,
    name       TEXT        NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
)

-- name: version
-- The last step that was taken.
SELECT coalesce(max(number), 0) FROM regista_migrations

-- name: migrated
-- Takes down one step.
INSERT INTO regista_migrations (number, name) VALUES ($1, $2)

-- name: claim
-- Gives a history that has no store yet to this one; says whose it is now.
INSERT INTO regista_cursor AS known (store) VALUES ($1)
ON CONFLICT (alone) DO UPDATE SET store = coalesce(nullif(known.store, ''), excluded.store)
RETURNING store

-- name: cursor
-- The number of the last entry recorded.
SELECT value FROM regista_cursor

-- name: record
-- Writes a batch and moves the cursor: all of it in the one transaction that a single statement is.
--   $1 to $4  job_id, first_seq, number and body of the entries, a list each
--   $5        rows of jobs as JSON objects, each job once
--   $6        the highest number among the entries
-- `moved` is joined to both inserts, so the row of the cursor is locked before anything is written: recorders take
-- turns. Rows that somebody wrote in the meantime are conflicts, seen or not, and left alone. Whatever the server's
-- default is, the commit is answered when it is on the disk: what can be read is safe, and `sync` has nothing to do.
WITH moved AS (
    UPDATE regista_cursor
    SET value = greatest(value, $6::BIGINT)
    RETURNING value, set_config('synchronous_commit', 'on', true)
),
written AS (
    INSERT INTO regista_entries (job_id, first_seq, number, body)
    SELECT new.job_id, new.first_seq, new.number, new.body
    FROM moved, unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) AS new (job_id, first_seq, number, body)
    ON CONFLICT (job_id, first_seq) DO NOTHING
),
told AS (
    INSERT INTO regista_jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes
    )
    SELECT new.*
    FROM moved, json_to_recordset($5::JSON) AS new (
        job_id TEXT, number BIGINT, client TEXT, blueprint TEXT, version TEXT, status TEXT, state TEXT,
        created_at TIMESTAMPTZ, updated_at TIMESTAMPTZ, finished_at TIMESTAMPTZ, parent_id TEXT, error_code TEXT,
        search_attributes JSONB
    )
    ON CONFLICT (job_id) DO UPDATE SET
        number            = excluded.number,
        version           = excluded.version,
        status            = excluded.status,
        state             = excluded.state,
        updated_at        = excluded.updated_at,
        finished_at       = excluded.finished_at,
        error_code        = excluded.error_code,
        search_attributes = excluded.search_attributes
    WHERE excluded.number > regista_jobs.number
)
SELECT value FROM moved

-- name: events
-- Entries of a job, from the one that holds the first event asked for.
-- One entry more than events asked for: the first may hold none of them.
SELECT first_seq, body
FROM regista_entries
WHERE
    job_id = $1
    AND first_seq >= coalesce(
        (SELECT max(first_seq) FROM regista_entries WHERE job_id = $1 AND first_seq <= $2::BIGINT + 1), 0
    )
ORDER BY first_seq
LIMIT $3::BIGINT + 1

-- name: stories
-- The first entries of several jobs, as many of each as events are asked for.
SELECT job_id, first_seq, body
FROM regista_entries
WHERE job_id = ANY($1::TEXT[]) AND first_seq <= $2
ORDER BY job_id, first_seq

-- name: entries
-- Entries after a number, of all jobs; the body of a stranger's is left out, so that the caller knows how far
-- this went.
SELECT
    entry.number,
    entry.job_id,
    entry.first_seq,
    CASE WHEN $3::TEXT IS NULL OR coalesce(job.client, '') = $3 THEN entry.body END AS body
FROM (
    SELECT number, job_id, first_seq, body
    FROM regista_entries
    WHERE number > $1
    ORDER BY number, job_id, first_seq
    LIMIT $2
) AS entry
LEFT JOIN regista_jobs AS job ON job.job_id = entry.job_id
ORDER BY entry.number, entry.job_id, entry.first_seq

-- name: summaries
-- Rows of jobs, newest first.
SELECT
    job_id, client, blueprint, version, status, state,
    created_at, updated_at, finished_at, parent_id, error_code, search_attributes
FROM regista_jobs
WHERE {filters}
ORDER BY created_at DESC, job_id DESC
LIMIT $1
