-- Lists are newest first by the time of creation, since an id that follows from an idempotency key says
-- nothing about time; and what happened to all jobs can be read on from any entry.

DROP INDEX jobs_by_client;
CREATE INDEX jobs_by_client ON jobs (client, created_at, job_id);

DROP INDEX jobs_unfinished;
CREATE INDEX jobs_unfinished ON jobs (status, created_at, job_id) WHERE status <> 'finished';

-- For operators, who list the jobs of everybody.
CREATE INDEX jobs_by_time ON jobs (created_at, job_id);

-- Numbers only grow, so the index does too, at its end.
CREATE INDEX entries_by_number ON entries (number);
