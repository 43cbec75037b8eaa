"""What a run left in Redis, read past our own scripts: jobs, their events, and whatever should not be there."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from redis.asyncio import Redis

from regista import Event, Job, RedisStorage
from regista.storage.codec import decode_job

_PREFIX = "regista:{r0}:"
#: What a store has none of when every job has ended: nothing waits, is held, is leased, or is due.
_TRANSIENT = (
    *("ready:", "leases", "owners", "lane:", "lanes", "line:", "late:"),
    *("held:", "holders", "due", "messages", "words"),
)
_PAGE = 1000


@dataclass(frozen=True)
class Remains:
    """The store at the end."""

    jobs: dict[str, Job]
    events: dict[str, list[Event]]
    #: Keys that tell of work which is not over.
    left_over: list[str]
    entries: int

    @classmethod
    async def read(cls, url: str) -> "Remains":
        async with Redis.from_url(url) as redis:
            keys = sorted([key.decode().removeprefix(_PREFIX) async for key in redis.scan_iter(count=_PAGE)])
            ids = [key.removeprefix("job:") for key in keys if key.startswith("job:")]
            jobs = {job_id: await _job(redis, job_id) for job_id in ids}
        left_over = [key for key in keys if _is_transient(key)]
        events, entries = await _read_outbox(url)
        return cls(jobs, events, left_over, entries)


def _is_transient(key: str) -> bool:
    return any(key.startswith(name) if name.endswith(":") else key == name for name in _TRANSIENT)


async def _job(redis: Redis, job_id: str) -> Job:
    body = await redis.hget(f"{_PREFIX}job:{job_id}", "b")
    assert isinstance(body, bytes), f"job {job_id} has no body"
    return decode_job(body)


async def _read_outbox(url: str) -> tuple[dict[str, list[Event]], int]:
    """The events of all jobs as they were written, and in how many entries."""
    store, after, entries = RedisStorage(url), 0, 0
    events: dict[str, list[Event]] = defaultdict(list)
    await store.start()
    try:
        while page := (await store.outbox(after, _PAGE)).entries:
            after, entries = page[-1].number, entries + len(page)
            for entry in page:
                events[entry.job_id] += entry.numbered()
        await _compare_tails(store, list(events.items())[:: max(1, len(events) // 200)])
    finally:
        await store.stop()
    return events, entries


async def _compare_tails(store: RedisStorage, sample: Iterable[tuple[str, list[Event]]]) -> None:
    for job_id, told in sample:
        assert await store.tail(job_id, 0) == told, f"readers are told another story of {job_id}"
