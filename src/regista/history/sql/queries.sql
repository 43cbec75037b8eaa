-- What the sqlite history asks its file. Every answer is ONE row, a list as JSON, because each further
-- row would give up the GIL once more and wait for a busy loop to hand it back.

-- name: record
-- Writes a batch and moves the cursor; the trigger in 0005 says how.
INSERT INTO batches (entries, heads, bodies, kinds, moments, keys, lowest, cursor) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: set_aside
-- Keeps what could not be written.
INSERT INTO set_aside (number, job_id, reason, body) VALUES (?, ?, ?, ?)

-- name: move
-- Moves the cursor, never back.
UPDATE meta SET value = ? WHERE name = 'cursor' AND value < ?

-- name: cursor
-- The number of the last entry recorded.
SELECT value FROM meta WHERE name = 'cursor'

-- name: events
-- [[first_seq, body in hex], ...] of a job, from the entry that holds the first event asked for.
-- One entry more than events asked for: the first may hold none of them.
SELECT json_group_array(json_array(first_seq, hex(body)))
FROM (
    SELECT first_seq, body
    FROM entries
    WHERE
        job_id = :job_id
        AND first_seq >= coalesce(
            (SELECT max(first_seq) FROM entries WHERE job_id = :job_id AND first_seq <= :after_seq + 1), 0
        )
    ORDER BY first_seq
    LIMIT :limit + 1
)

-- name: stories
-- [[job_id, first_seq, body in hex], ...] of several jobs, as many entries of each as events are asked for.
SELECT json_group_array(json_array(job_id, first_seq, hex(body)))
FROM entries
WHERE job_id IN (SELECT value FROM json_each(:job_ids)) AND first_seq <= :limit

-- name: summaries
-- Rows of jobs, newest first. Times leave as whole microseconds: JSON would cut them at 15 digits.
SELECT json_group_array(
    json_array(
        job_id,
        client,
        blueprint,
        version,
        status,
        state,
        CAST(round(created_at * 1e6) AS INTEGER),
        CAST(round(updated_at * 1e6) AS INTEGER),
        CAST(round(finished_at * 1e6) AS INTEGER),
        parent_id,
        error_code,
        json(search_attributes)
    )
)
FROM (SELECT * FROM jobs WHERE {filters} ORDER BY created_at DESC, job_id DESC LIMIT :limit)

-- name: entries
-- [[number, job_id, first_seq, client, body in hex], ...] after a number, of all jobs; the body of a
-- stranger's is left out, so that the caller knows how far this went.
SELECT json_group_array(json_array(number, job_id, first_seq, client, CASE WHEN :client IS NULL OR client = :client THEN hex(body) END))
FROM (
    SELECT entries.number, entries.job_id, entries.first_seq, entries.body, coalesce(jobs.client, '') AS client
    FROM entries LEFT JOIN jobs ON jobs.job_id = entries.job_id
    WHERE entries.number > :after
    ORDER BY entries.number
    LIMIT :limit
)

-- name: search
-- Rows of jobs that fit, as `summaries` has them.
SELECT json_group_array(
    json_array(
        job_id,
        client,
        blueprint,
        version,
        status,
        state,
        CAST(round(created_at * 1e6) AS INTEGER),
        CAST(round(updated_at * 1e6) AS INTEGER),
        CAST(round(finished_at * 1e6) AS INTEGER),
        parent_id,
        error_code,
        json(search_attributes)
    )
)
FROM (SELECT jobs.* FROM {source} WHERE {filters} ORDER BY {order} LIMIT :limit)

-- name: tally
-- [[all or not, value, jobs, ended, microseconds in all, p50, p95], ...]: one row for all of them, and one for each
-- of the largest groups.
WITH members (value, took) AS MATERIALIZED (
    SELECT {group}, CAST(round((jobs.finished_at - jobs.created_at) * 1e6) AS INTEGER)
    FROM {source}
    WHERE {filters} AND jobs.job_id NOT IN (SELECT value FROM json_each(:without))
    UNION ALL
    SELECT value ->> 0, value ->> 1
    FROM json_each(:beside)
),
ranked AS (
    SELECT
        value,
        took,
        count(took) OVER (PARTITION BY value) AS ended,
        row_number() OVER (PARTITION BY value ORDER BY took IS NULL, took) AS place
    FROM members
    WHERE :grouped
),
groups AS (
    SELECT
        false AS total,
        value,
        count(*) AS jobs,
        max(ended) AS ended,
        sum(took) AS took,
        max(took) FILTER (WHERE place = (ended * 50 + 99) / 100) AS p50,
        max(took) FILTER (WHERE place = (ended * 95 + 99) / 100) AS p95
    FROM ranked
    GROUP BY value
    ORDER BY jobs DESC, value IS NULL, value
    LIMIT :limit
),
lined AS (
    SELECT
        took,
        count(took) OVER () AS ended,
        row_number() OVER (ORDER BY took IS NULL, took) AS place
    FROM members
),
total AS (
    SELECT
        count(*) AS jobs,
        coalesce(max(ended), 0) AS ended,
        sum(took) AS took,
        max(took) FILTER (WHERE place = (ended * 50 + 99) / 100) AS p50,
        max(took) FILTER (WHERE place = (ended * 95 + 99) / 100) AS p95
    FROM lined
)
SELECT json_group_array(json_array(total, value, jobs, ended, took, p50, p95))
FROM (SELECT * FROM groups UNION ALL SELECT true, NULL, jobs, ended, took, p50, p95 FROM total)

-- name: expired_by_age
-- The ids of jobs that ended before an instant, oldest first.
SELECT json_group_array(job_id)
FROM (
    SELECT job_id
    FROM jobs
    -- What was created later cannot have ended earlier: the index bounds the walk.
    WHERE created_at < :before AND finished_at < :before AND +status IN ('finished', 'failed', 'cancelled')
    ORDER BY created_at, job_id
    LIMIT :limit
)

-- name: expired_by_count
-- The same of jobs behind the newest so many.
SELECT json_group_array(job_id)
FROM (
    SELECT job_id
    FROM jobs
    WHERE
        (created_at, job_id)
        < (SELECT created_at, job_id FROM jobs ORDER BY created_at DESC, job_id DESC LIMIT 1 OFFSET :keep - 1)
        AND +status IN ('finished', 'failed', 'cancelled')
    ORDER BY created_at, job_id
    LIMIT :limit
)

-- name: attributes
-- [[job_id, search_attributes], ...] of these jobs.
SELECT json_group_array(json_array(job_id, json(search_attributes)))
FROM jobs
WHERE job_id IN (SELECT value FROM json_each(:jobs)) AND search_attributes <> '{}'

-- name: forget_keys
-- Forgets what leads to jobs: [[name, key, job_id], ...].
DELETE FROM attributes
WHERE (name, key, created_at, job_id) IN (
    SELECT row.value ->> 0, row.value ->> 1, jobs.created_at, jobs.job_id
    FROM json_each(:keys) AS row
    CROSS JOIN jobs ON jobs.job_id = row.value ->> 2
)

-- name: forget_entries
-- Forgets the stories of jobs.
DELETE FROM entries WHERE job_id IN (SELECT value FROM json_each(:jobs))

-- name: forget_jobs
-- Forgets the jobs themselves.
DELETE FROM jobs WHERE job_id IN (SELECT value FROM json_each(:jobs))

-- name: unindexed
-- Jobs that were recorded before there was an index of their attributes.
SELECT job_id, created_at, search_attributes FROM jobs WHERE search_attributes <> '{}'
