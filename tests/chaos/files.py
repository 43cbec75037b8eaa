"""What a run left on disk, read past our own code: jobs, and their events from history and outbox."""

import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regista import Event, Job
from regista.history.encoding import decode_events
from regista.model import OutboxEntry
from regista.storage.codec import decode_job


@dataclass
class Files:
    """What is on disk at the end: jobs, and their events from history and outbox."""

    jobs: dict[str, Job]
    live: set[str]
    events: dict[str, list[Event]]

    @classmethod
    def read(cls, store: Path) -> "Files":
        with _reading(store) as jobs_db, _reading(store.with_name("jobs.history.db")) as history_db:
            rows = jobs_db.execute("SELECT id, live, body FROM jobs").fetchall()
            recorded = history_db.execute(
                "SELECT job_id, first_seq, number, body FROM regista_entries"
            ).fetchall()
            waiting = jobs_db.execute("SELECT body FROM outbox").fetchall()
        entries: dict[int, OutboxEntry] = {}
        for job_id, first_seq, number, body in recorded:
            assert number not in entries, f"two rows of history are entry {number}"
            entries[number] = OutboxEntry(number, job_id, first_seq, decode_events(body))
        for entry in (
            entry for (body,) in waiting for entry in msgspec.msgpack.decode(body, type=list[OutboxEntry])
        ):
            known = entries.setdefault(entry.number, entry)
            # What is in both must be the same, or a number was given twice.
            assert (known.job_id, known.first_seq) == (entry.job_id, entry.first_seq)
            assert known.events == entry.events
        events: dict[str, list[Event]] = defaultdict(list)
        for _, entry in sorted(entries.items()):
            events[entry.job_id] += entry.numbered()
        return cls({row[0]: decode_job(row[2]) for row in rows}, {row[0] for row in rows if row[1]}, events)


def _reading(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True)
