-- Small records that belong to no job: tokens, deliveries, the state of schedules. Times are microseconds since 1970.
CREATE TABLE items (
    shelf TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due INTEGER,
    expires INTEGER,
    value BLOB NOT NULL,
    PRIMARY KEY (shelf, key)
) WITHOUT ROWID;

-- How often each quota was used.
CREATE TABLE counts (
    counter TEXT PRIMARY KEY,
    used INTEGER NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;

-- As in 0001, with items and counts. Their names are glued to their bodies, since JSON has no way to say every
-- string so that SQLite reads all of it: an index row ends in the offset and the lengths of the parts.
-- Revision 0 and a use of 0 mean: gone.
DROP VIEW flush;

CREATE VIEW flush AS
SELECT
    NULL AS jobs, NULL AS job_bodies,
    NULL AS tasks, NULL AS task_bodies, NULL AS dropped_tasks,
    NULL AS messages, NULL AS message_bodies, NULL AS dropped_messages,
    NULL AS entries, NULL AS entry_bodies, NULL AS pruned,
    NULL AS meta, NULL AS meta_values,
    NULL AS items, NULL AS item_bodies,
    NULL AS counts, NULL AS count_names;

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

    INSERT OR REPLACE INTO items (revision, due, expires, shelf, key, value)
    SELECT
        j.value ->> 0, j.value ->> 1, j.value ->> 2,
        CAST(substr(new.item_bodies, j.value ->> 3, j.value ->> 4) AS TEXT),
        CAST(substr(new.item_bodies, (j.value ->> 3) + (j.value ->> 4), j.value ->> 5) AS TEXT),
        substr(new.item_bodies, (j.value ->> 3) + (j.value ->> 4) + (j.value ->> 5), j.value ->> 6)
    FROM json_each(new.items) AS j
    WHERE j.value ->> 0 > 0;

    DELETE FROM items WHERE (shelf, key) IN (
        SELECT
            CAST(substr(new.item_bodies, j.value ->> 3, j.value ->> 4) AS TEXT),
            CAST(substr(new.item_bodies, (j.value ->> 3) + (j.value ->> 4), j.value ->> 5) AS TEXT)
        FROM json_each(new.items) AS j
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
