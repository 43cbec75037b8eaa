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

-- Durable words between jobs, until somebody has acted on them. The rowid keeps their order.
CREATE TABLE messages (
    id TEXT UNIQUE NOT NULL,
    body BLOB NOT NULL
);

-- Events on their way to history, one row per commit.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- One INSERT into this view writes a whole batch. A statement is the unit in which Python gives up
-- its lock: row by row, a busy interpreter made a 50-row commit take 150 ms instead of 0.3. Each pair
-- of arguments is an index (JSON rows ending in offset and length) and the bodies glued together.
CREATE VIEW flush AS
SELECT
    NULL AS jobs, NULL AS job_bodies,
    NULL AS tasks, NULL AS task_bodies, NULL AS dropped_tasks,
    NULL AS messages, NULL AS message_bodies, NULL AS dropped_messages,
    NULL AS entries, NULL AS entry_bodies, NULL AS pruned,
    NULL AS meta, NULL AS meta_values;

CREATE TRIGGER flush_batch INSTEAD OF INSERT ON flush
BEGIN
    INSERT OR REPLACE INTO jobs
    SELECT
        j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3,
        substr(new.job_bodies, j.value ->> 4, j.value ->> 5)
    FROM json_each(new.jobs) AS j;

    INSERT OR REPLACE INTO tasks
    SELECT j.value ->> 0, substr(new.task_bodies, j.value ->> 1, j.value ->> 2)
    FROM json_each(new.tasks) AS j;

    DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(new.dropped_tasks));

    -- Said again, a message keeps its place: no OR REPLACE here.
    INSERT INTO messages (id, body)
    SELECT j.value ->> 0, substr(new.message_bodies, j.value ->> 1, j.value ->> 2)
    FROM json_each(new.messages) AS j
    WHERE true
    ON CONFLICT (id) DO UPDATE SET body = excluded.body;

    DELETE FROM messages WHERE id IN (SELECT value FROM json_each(new.dropped_messages));

    INSERT OR REPLACE INTO outbox
    SELECT j.value ->> 0, substr(new.entry_bodies, j.value ->> 1, j.value ->> 2)
    FROM json_each(new.entries) AS j;

    -- The last entry stays: numbers go on from it after a restart.
    DELETE FROM outbox WHERE number <= new.pruned AND number < (SELECT max(number) FROM outbox);

    INSERT OR REPLACE INTO meta
    SELECT j.value ->> 0, substr(new.meta_values, j.value ->> 1, j.value ->> 2)
    FROM json_each(new.meta) AS j;
END;
