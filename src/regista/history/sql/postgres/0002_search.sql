-- Search: what leads to jobs by their attributes; and a place for what could not be written.

-- The words of a job's texts, each as ' Name:word ', so that one can be looked for without a tokenizer in SQL.
ALTER TABLE regista_jobs ADD COLUMN words TEXT COLLATE "C" NOT NULL DEFAULT '';

-- For operators, who look for the jobs of one blueprint among everybody's.
CREATE INDEX regista_jobs_by_blueprint ON regista_jobs (blueprint, created_at, job_id);

-- What values lead to which jobs, newest last. Whether a job has the value is always asked of its row: a key that
-- it no longer has leads nowhere, and does no harm.
CREATE TABLE regista_attributes (
    name       TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMPTZ      NOT NULL,
    job_id     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (name, key, created_at, job_id)
);

-- Entries that the server refused, so that they kept no other out. Nothing of them is indexed.
CREATE TABLE regista_set_aside (
    number BIGINT           NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    reason TEXT             NOT NULL,
    body   BYTEA            NOT NULL,
    at     TIMESTAMPTZ      NOT NULL DEFAULT now()
);

-- An entry with a higher number is the newer word: from its first seq on, it takes the place of what older ones told.
-- That happens when a store forgot its last moments, or when the key of a job that it forgot is used again. `record`
-- clears what it can see; here, what another recorder wrote while it waited for its turn.
CREATE FUNCTION regista_retold() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM regista_entries
    WHERE job_id = new.job_id AND first_seq > new.first_seq AND number < new.number;
    RETURN NULL;
END
$$;

CREATE TRIGGER regista_entry_retold AFTER UPDATE OF number ON regista_entries
FOR EACH ROW EXECUTE FUNCTION regista_retold();
