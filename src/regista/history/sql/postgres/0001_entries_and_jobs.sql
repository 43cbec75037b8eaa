-- The first schema: what happened, where each job stands, and how far the recorders have come.
-- Text is compared by its bytes (COLLATE "C"): places in a list must be the same on every server.

-- One row per commit. The body stays msgpack: it is read whole, by one job at a time, and JSONB would lose its
-- types, refuse some of its characters and be parsed at every write.
CREATE TABLE regista_entries (
    job_id    TEXT COLLATE "C" NOT NULL,
    first_seq BIGINT           NOT NULL,
    number    BIGINT           NOT NULL,
    body      BYTEA            NOT NULL,
    PRIMARY KEY (job_id, first_seq)
);

-- Numbers only grow, so the index does too, at its end.
CREATE INDEX regista_entries_by_number ON regista_entries (number);

-- One row per job, for lists and searches.
CREATE TABLE regista_jobs (
    job_id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The entry that wrote the row: an older one must not overwrite a newer one.
    number            BIGINT           NOT NULL,
    client            TEXT COLLATE "C" NOT NULL,
    blueprint         TEXT COLLATE "C" NOT NULL,
    version           TEXT COLLATE "C" NOT NULL,
    status            TEXT COLLATE "C" NOT NULL,
    state             TEXT COLLATE "C" NOT NULL,
    created_at        TIMESTAMPTZ      NOT NULL,
    updated_at        TIMESTAMPTZ      NOT NULL,
    finished_at       TIMESTAMPTZ,
    parent_id         TEXT COLLATE "C",
    error_code        TEXT COLLATE "C",
    search_attributes JSONB            NOT NULL DEFAULT '{}'
);

-- A client lists its own jobs, newest first by the time of creation: an id that follows from an idempotency key
-- says nothing about time.
CREATE INDEX regista_jobs_by_client ON regista_jobs (client, created_at, job_id);

-- Live and troubled jobs are few; the many that finished are not worth an entry.
CREATE INDEX regista_jobs_unfinished ON regista_jobs (status, created_at, job_id) WHERE status <> 'finished';

-- For operators, who list the jobs of everybody.
CREATE INDEX regista_jobs_by_time ON regista_jobs (created_at, job_id);

-- One row, and the store whose entries it counts. Whoever records takes it first, so two never wait for each
-- other in a circle.
CREATE TABLE regista_cursor (
    alone BOOLEAN NOT NULL PRIMARY KEY DEFAULT true CHECK (alone),
    store TEXT    NOT NULL,
    value BIGINT  NOT NULL DEFAULT 0
);
