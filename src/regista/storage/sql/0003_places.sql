-- As in 0002, but cheaper to read: `->>` looks a value up in the text of its row, which json_each wrote out for it, and
-- those two were half of what a batch cost. Now an index is one flat object: an id, and the place of its body among
-- the bodies that are glued together. A place is offset << 30 | length; no value of SQLite is as long as 1 << 30.
-- What is rare (items, counts) stays as it was, in a trigger of its own. Where there is nothing to write, an index is NULL.

-- An outbox row holds all entries of a batch, as a list, under the number of the last. The rows that wait become lists of one.
UPDATE outbox SET body = CAST(x'dd00000001' || body AS BLOB);

-- A row goes when its last entry is pruned; until then this tells which of its entries are.
CREATE TABLE pruned (upto INTEGER NOT NULL);
INSERT INTO pruned (upto) VALUES (0);

DROP VIEW flush;

CREATE VIEW flush AS
SELECT
    NULL AS jobs, NULL AS job_bodies,
    NULL AS tasks, NULL AS task_bodies, NULL AS dropped_tasks,
    NULL AS messages, NULL AS message_bodies, NULL AS dropped_messages,
    NULL AS last_entry, NULL AS entries, NULL AS pruned,
    NULL AS meta, NULL AS meta_values,
    NULL AS items, NULL AS item_bodies,
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
WHEN coalesce(new.messages, new.dropped_messages, new.meta, new.items, new.counts) IS NOT NULL
BEGIN
    -- Said again, a message keeps its place: no OR REPLACE here.
    INSERT INTO messages (id, body)
    SELECT j.key, substr(new.message_bodies, j.value >> 30, j.value & 0x3fffffff)
    FROM json_each(new.messages) AS j
    WHERE true
    ON CONFLICT (id) DO UPDATE SET body = excluded.body;

    DELETE FROM messages WHERE id IN (SELECT value FROM json_each(new.dropped_messages));

    INSERT OR REPLACE INTO meta
    SELECT j.key, substr(new.meta_values, j.value >> 30, j.value & 0x3fffffff)
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
