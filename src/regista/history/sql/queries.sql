-- What the sqlite history asks its file. Every answer is ONE row, a list as JSON, because each further
-- row would give up the GIL once more and wait for a busy loop to hand it back.

-- name: record
-- Writes a batch and moves the cursor; the trigger in 0001 says how.
INSERT INTO batches (entries, bodies, jobs, cursor) VALUES (?, ?, ?, ?)

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
