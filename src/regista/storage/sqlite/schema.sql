-- Live and ended jobs. Ids are time-ordered, so new rows sit side by side.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    live INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    open_branches INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- Start-up reads only what is live, however many jobs have ended.
CREATE INDEX jobs_live ON jobs (id) WHERE live;

-- Tasks that are kept: waiting, running, or closed branches that wait for their aggregator.
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- Messages between jobs, until a change has consumed them. The rowid keeps their order.
CREATE TABLE messages (
    id TEXT UNIQUE NOT NULL,
    body BLOB NOT NULL
);

-- Events on their way to history: all entries of a batch, as a msgpack list, under the number of the last.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- A row of the outbox goes when its last entry is pruned; until then this says which of its entries are.
CREATE TABLE pruned (upto INTEGER NOT NULL);
INSERT INTO pruned (upto) VALUES (0);

-- Small records that belong to no job: tokens, deliveries, the state of schedules. Times are microseconds since 1970.
CREATE TABLE records (
    collection TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due INTEGER,
    expires INTEGER,
    value BLOB NOT NULL,
    PRIMARY KEY (collection, key)
) WITHOUT ROWID;

-- How often each quota was used.
CREATE TABLE counts (
    counter TEXT PRIMARY KEY,
    used INTEGER NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;

-- One INSERT into this view writes a whole batch. A statement is the unit in which Python gives up its lock: row by row, a
-- busy interpreter made a 50-row commit take 150 ms instead of 0.3. An index is one flat JSON object: an id, and the
-- position of its body among the bodies that are joined. A position is offset << 30 | length; no value of SQLite is as long
-- as 1 << 30. Where there is nothing to write, an index is NULL. The names of records and counts are joined to their
-- bodies, since JSON cannot express every string so that SQLite reads all of it: their index rows end in the offset
-- and the lengths of the parts. Revision 0 and a use of 0 mean: removed.
CREATE VIEW flush AS
SELECT
    NULL AS jobs, NULL AS job_bodies,
    NULL AS tasks, NULL AS task_bodies, NULL AS dropped_tasks,
    NULL AS messages, NULL AS message_bodies, NULL AS dropped_messages,
    NULL AS last_entry, NULL AS entries, NULL AS pruned,
    NULL AS records, NULL AS record_bodies,
    NULL AS counts, NULL AS count_names;

CREATE TRIGGER flush_batch INSTEAD OF INSERT ON flush
BEGIN
    -- Before its body, each job has 1 + 10 + 10 digits: live, seq and open branches.
    INSERT OR REPLACE INTO jobs
    SELECT
        j.key,
        CAST(substr(new.job_bodies, j.value >> 30, 1) AS INTEGER),
        CAST(substr(new.job_bodies, (j.value >> 30) + 1, 10) AS INTEGER),
        CAST(substr(new.job_bodies, (j.value >> 30) + 11, 10) AS INTEGER),
        substr(new.job_bodies, (j.value >> 30) + 21, (j.value & 0x3fffffff) - 21)
    FROM json_each(new.jobs) AS j;

    INSERT OR REPLACE INTO tasks
    SELECT j.key, substr(new.task_bodies, j.value >> 30, j.value & 0x3fffffff)
    FROM json_each(new.tasks) AS j;

    DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(new.dropped_tasks));

    INSERT OR REPLACE INTO outbox SELECT new.last_entry, new.entries WHERE new.last_entry IS NOT NULL;

    UPDATE pruned SET upto = new.pruned WHERE upto < new.pruned;

    -- The last row stays: numbers go on from it after a restart.
    DELETE FROM outbox WHERE number <= new.pruned AND number < (SELECT max(number) FROM outbox);
END;

-- What most batches do not have.
CREATE TRIGGER flush_rest INSTEAD OF INSERT ON flush
WHEN coalesce(new.messages, new.dropped_messages, new.records, new.counts) IS NOT NULL
BEGIN
    -- Written again, a message keeps its place: no OR REPLACE here.
    INSERT INTO messages (id, body)
    SELECT j.key, substr(new.message_bodies, j.value >> 30, j.value & 0x3fffffff)
    FROM json_each(new.messages) AS j
    WHERE true
    ON CONFLICT (id) DO UPDATE SET body = excluded.body;

    DELETE FROM messages WHERE id IN (SELECT value FROM json_each(new.dropped_messages));

    INSERT OR REPLACE INTO records (revision, due, expires, collection, key, value)
    SELECT
        j.value ->> 0, j.value ->> 1, j.value ->> 2,
        CAST(substr(new.record_bodies, j.value ->> 3, j.value ->> 4) AS TEXT),
        CAST(substr(new.record_bodies, (j.value ->> 3) + (j.value ->> 4), j.value ->> 5) AS TEXT),
        substr(new.record_bodies, (j.value ->> 3) + (j.value ->> 4) + (j.value ->> 5), j.value ->> 6)
    FROM json_each(new.records) AS j
    WHERE j.value ->> 0 > 0;

    DELETE FROM records WHERE (collection, key) IN (
        SELECT
            CAST(substr(new.record_bodies, j.value ->> 3, j.value ->> 4) AS TEXT),
            CAST(substr(new.record_bodies, (j.value ->> 3) + (j.value ->> 4), j.value ->> 5) AS TEXT)
        FROM json_each(new.records) AS j
        WHERE j.value ->> 0 = 0
    );

    INSERT OR REPLACE INTO counts (used, expires, counter)
    SELECT
        j.value ->> 0, j.value ->> 1,
        CAST(substr(new.count_names, j.value ->> 2, j.value ->> 3) AS TEXT)
    FROM json_each(new.counts) AS j
    WHERE j.value ->> 0 > 0;

    DELETE FROM counts WHERE counter IN (
        SELECT CAST(substr(new.count_names, j.value ->> 2, j.value ->> 3) AS TEXT)
        FROM json_each(new.counts) AS j
        WHERE j.value ->> 0 = 0
    );
END;
