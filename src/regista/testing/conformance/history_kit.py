"""What the suite for histories is made of: entries and summaries whose further fields do not matter."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ...history.base import HistoryStorage
from ...history.query import Query
from ...model import Event, EventType, JobSummary, OutboxEntry

HistoryFactory = Callable[[], HistoryStorage]

P = ParamSpec("P")
H = TypeVar("H", bound=HistoryStorage)

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def running(history: H) -> AsyncIterator[H]:
    """The history, started, and stopped in any case."""
    await history.start()
    try:
        yield history
    finally:
        await history.stop()


def make_summary(job_id: str, status: str = "running", **fields: Any) -> JobSummary:
    """A summary whose further fields do not matter."""
    defaults: dict[str, Any] = {
        "blueprint": "transcode",
        "version": "v1",
        "client": "acme",
        "state": "start",
        "created_at": START,
        "updated_at": START,
    }
    return JobSummary(job_id=job_id, status=status, **{**defaults, **fields})


def make_entry(
    number: int, job_id: str = "job-1", first_seq: int = 1, events: int = 1, summary: JobSummary | None = None
) -> OutboxEntry:
    """An entry of so many events, each with a message that names it."""
    told = (
        Event(type=EventType.STATE_STARTED, at=START + timedelta(seconds=seq), message=f"{job_id}/{seq}")
        for seq in range(first_seq, first_seq + events)
    )
    return OutboxEntry(number, job_id, first_seq, tuple(told), summary)


def named(events: list[Event]) -> list[tuple[str, int]]:
    """The names of events, after checking that each is the one that carries it."""
    assert [event.message for event in events] == [f"{event.job_id}/{event.seq}" for event in events]
    return [(event.job_id, event.seq) for event in events]


def seqs(events: list[Event]) -> list[int]:
    """The sequence numbers alone."""
    return [seq for _, seq in named(events)]


async def summary_of(history: HistoryStorage, job_id: str) -> JobSummary | None:
    """The summary of one job."""
    found = await history.search(Query().restricted(job_id=job_id), limit=1)
    return found[0] if found else None


async def summaries_of(
    history: HistoryStorage,
    *,
    before: tuple[datetime, str] | None = None,
    limit: int = 100,
    **columns: str | None,
) -> list[JobSummary]:
    """The jobs with these columns, newest first, behind a place."""
    return await history.search(Query().restricted(**columns), before, limit)
