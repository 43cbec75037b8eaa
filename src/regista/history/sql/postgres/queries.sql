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
--   $6 to $9  name, key, created_at and job_id of what leads to these jobs, a list each
--   $10       the highest number among the entries
-- `moved` is joined to all the others, so the row of the cursor is locked before anything is written: recorders take
-- turns. Rows that somebody wrote in the meantime are conflicts, seen or not, and left alone, unless they are older:
-- from its first seq on, an entry takes the place of what lower numbers told. Whatever the server's default is, the
-- commit is answered when it is on the disk: what can be read is safe, and `sync` has nothing to do.
WITH moved AS (
    UPDATE regista_cursor
    SET value = greatest(regista_cursor.value, $10::BIGINT)
    FROM (SELECT value AS before FROM regista_cursor WHERE alone FOR UPDATE) AS old
    WHERE alone
    RETURNING value, old.before, set_config('synchronous_commit', 'on', true)
),
told AS MATERIALIZED (
    SELECT moved.before, new.job_id, new.first_seq, new.number, new.body
    FROM moved, unnest($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[]) AS new (job_id, first_seq, number, body)
),
replaced AS (
    DELETE FROM regista_entries
    -- By their places in the table, found one index look-up at a time: whatever the planner thinks of new tables.
    WHERE ctid = ANY (
        ARRAY(
            SELECT old.ctid
            FROM told
            CROSS JOIN LATERAL (
                SELECT ctid
                FROM regista_entries
                WHERE job_id = told.job_id AND first_seq > told.first_seq AND number < told.number
                OFFSET 0
            ) AS old
        )
    )
),
written AS (
    INSERT INTO regista_entries AS known (job_id, first_seq, number, body)
    SELECT told.job_id, told.first_seq, told.number, told.body
    FROM told
    -- What comes late may belong to a story that was told anew since: then the last entry before it is newer.
    WHERE
        told.number > told.before
        OR coalesce(
            (
                SELECT old.number
                FROM regista_entries AS old
                WHERE old.job_id = told.job_id AND old.first_seq <= told.first_seq
                ORDER BY old.first_seq DESC
                LIMIT 1
            ), 0
        ) <= told.number
    ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body
    WHERE excluded.number > known.number
),
listed AS (
    INSERT INTO regista_jobs (
        job_id, number, client, blueprint, version, status, state,
        created_at, updated_at, finished_at, parent_id, error_code, search_attributes, words
    )
    SELECT new.*
    FROM moved, json_to_recordset($5::JSON) AS new (
        job_id TEXT, number BIGINT, client TEXT, blueprint TEXT, version TEXT, status TEXT, state TEXT,
        created_at TIMESTAMPTZ, updated_at TIMESTAMPTZ, finished_at TIMESTAMPTZ, parent_id TEXT, error_code TEXT,
        search_attributes JSONB, words TEXT
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
led AS (
    INSERT INTO regista_attributes (name, key, created_at, job_id)
    SELECT new.name, new.key, new.created_at, new.job_id
    FROM moved, unnest($6::TEXT[], $7::TEXT[], $8::TIMESTAMPTZ[], $9::TEXT[]) AS new (name, key, created_at, job_id)
    ON CONFLICT DO NOTHING
)
SELECT value FROM moved

-- name: set_aside
-- Keeps what the server refused, and moves the cursor over it.
WITH moved AS (
    UPDATE regista_cursor SET value = greatest(value, $1::BIGINT) RETURNING value
)
INSERT INTO regista_set_aside (number, job_id, reason, body)
SELECT $1, $2, $3, $4 FROM moved

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

-- name: search
-- Rows of jobs that fit.
SELECT
    jobs.job_id, jobs.client, jobs.blueprint, jobs.version, jobs.status, jobs.state,
    jobs.created_at, jobs.updated_at, jobs.finished_at, jobs.parent_id, jobs.error_code, jobs.search_attributes
FROM {source}
WHERE {filters}
ORDER BY {order}
LIMIT {limit}

-- name: tally
-- One row for all jobs that fit, and one for each of the largest groups.
WITH members (value, took) AS MATERIALIZED (
    SELECT {group}, {span}
    FROM {source}
    WHERE {filters} AND NOT jobs.job_id = ANY({without})
    UNION ALL
    SELECT ({beside_value}), (row.value ->> 1)::BIGINT
    FROM jsonb_array_elements({beside}) AS row (value)
),
ranked AS (
    SELECT
        value,
        took,
        count(took) OVER (PARTITION BY value) AS ended,
        row_number() OVER (PARTITION BY value ORDER BY took IS NULL, took) AS place
    FROM members
    WHERE {grouped}
),
groups AS (
    SELECT
        false AS total,
        value,
        count(*) AS jobs,
        max(ended) AS ended,
        sum(took)::BIGINT AS took,
        max(took) FILTER (WHERE place = (ended * 50 + 99) / 100) AS p50,
        max(took) FILTER (WHERE place = (ended * 95 + 99) / 100) AS p95
    FROM ranked
    GROUP BY value
    ORDER BY jobs DESC, value IS NULL, value
    LIMIT {limit}
),
lined AS (
    SELECT
        took,
        count(took) OVER () AS ended,
        row_number() OVER (ORDER BY took IS NULL, took) AS place
    FROM members
)
SELECT total, value, jobs, ended, took, p50, p95 FROM groups
UNION ALL
SELECT
    true,
    NULL,
    count(*),
    coalesce(max(ended), 0),
    sum(took)::BIGINT,
    max(took) FILTER (WHERE place = (ended * 50 + 99) / 100),
    max(took) FILTER (WHERE place = (ended * 95 + 99) / 100)
FROM lined

-- name: expired_by_age
-- Jobs that ended before an instant, oldest first. What was created later cannot have ended earlier: the index
-- bounds the walk.
SELECT job_id
FROM regista_jobs
WHERE created_at < $1 AND finished_at < $1 AND status IN ('finished', 'failed', 'cancelled')
ORDER BY created_at, job_id
LIMIT $2

-- name: expired_by_count
-- The same of jobs behind the newest so many.
SELECT job_id
FROM regista_jobs
WHERE
    (created_at, job_id)
    < (SELECT created_at, job_id FROM regista_jobs ORDER BY created_at DESC, job_id DESC LIMIT 1 OFFSET $1::BIGINT - 1)
    AND status IN ('finished', 'failed', 'cancelled')
ORDER BY created_at, job_id
LIMIT $2

-- name: attributes
-- What these jobs can be found by.
SELECT job_id, created_at, search_attributes
FROM regista_jobs
WHERE job_id = ANY($1::TEXT[]) AND search_attributes <> '{}'

-- name: forget
-- Forgets jobs ($1), their stories, and what leads to them ($2 to $5).
WITH stories AS (
    DELETE FROM regista_entries WHERE job_id = ANY($1::TEXT[])
),
leads AS (
    DELETE FROM regista_attributes AS old
    USING unnest($2::TEXT[], $3::TEXT[], $4::TIMESTAMPTZ[], $5::TEXT[]) AS gone (name, key, created_at, job_id)
    WHERE
        old.name = gone.name AND old.key = gone.key AND old.created_at = gone.created_at AND old.job_id = gone.job_id
)
DELETE FROM regista_jobs WHERE job_id = ANY($1::TEXT[])

-- name: unindexed
-- Jobs that were recorded before there was an index of their attributes.
SELECT job_id, created_at, search_attributes FROM regista_jobs WHERE search_attributes <> '{}'

-- name: index
-- What leads to one of them.
WITH worded AS (
    UPDATE regista_jobs SET words = $5 WHERE job_id = $4
)
INSERT INTO regista_attributes (name, key, created_at, job_id)
SELECT new.name, new.key, $3, $4 FROM unnest($1::TEXT[], $2::TEXT[]) AS new (name, key)
ON CONFLICT DO NOTHING
