-- What happened, where each job stands, and how far the recorders have come. Times are microseconds since 1970, UTC.
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
    created_at        BIGINT           NOT NULL,
    updated_at        BIGINT           NOT NULL,
    finished_at       BIGINT,
    parent_id         TEXT COLLATE "C",
    error_code        TEXT COLLATE "C",
    search_attributes JSONB            NOT NULL DEFAULT '{}',
    -- The words of the job's texts, each as ' Name:word '.
    words             TEXT COLLATE "C" NOT NULL DEFAULT ''
);

-- Lists are newest first by the time of creation: an id that follows from an idempotency key says nothing about time.
CREATE INDEX regista_jobs_by_client ON regista_jobs (client, created_at, job_id);
CREATE INDEX regista_jobs_by_blueprint ON regista_jobs (blueprint, created_at, job_id);
CREATE INDEX regista_jobs_by_time ON regista_jobs (created_at, job_id);
-- Live and troubled jobs are few; the many that finished are not worth an entry.
CREATE INDEX regista_jobs_unfinished ON regista_jobs (status, created_at, job_id) WHERE status <> 'finished';

-- What values lead to which jobs, newest last. Whether a job has the value is always checked on its row: a key that
-- it no longer has leads nowhere.
CREATE TABLE regista_attributes (
    name       TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    created_at BIGINT           NOT NULL,
    job_id     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (name, key, created_at, job_id)
);

-- Entries that the server rejected, kept apart so that they hold no other back. Nothing of them is indexed.
CREATE TABLE regista_rejected (
    number BIGINT           NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    reason TEXT             NOT NULL,
    body   BYTEA            NOT NULL,
    at     TIMESTAMPTZ      NOT NULL DEFAULT now()
);

-- One row, and the store whose entries it counts. A recorder locks it first, so two of them take turns.
CREATE TABLE regista_cursor (
    id    INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    store TEXT    NOT NULL,
    value BIGINT  NOT NULL DEFAULT 0
);

-- An entry with a higher number supersedes what lower ones recorded from its first seq on. That happens when a store
-- lost its last moments, or when the key of a job that it forgot is used again. `record` clears what it can see; here,
-- what another recorder wrote while it waited for its turn.
CREATE FUNCTION regista_superseded() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM regista_entries
    WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    RETURN NULL;
END
$$;

CREATE TRIGGER regista_entry_updated AFTER UPDATE OF number ON regista_entries
FOR EACH ROW EXECUTE FUNCTION regista_superseded();
