import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from regista.errors import StorageUnavailable
from regista.model import Job, JobStatus
from regista.storage.redis import lately
from regista.storage.redis.line import Command, Reply
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    APPLIED,
    STALE,
    commit,
    create,
    event,
    make_job,
    next_of,
    only,
    running,
    told,
    write,
)
from tests.proxy import Proxy
from tests.redis_server import RedisServer

from .conftest import Open

STORY = [(1, "born"), (2, "ended"), (3, "over")]


@asynccontextmanager
async def counting(store: RedisStorage) -> AsyncIterator[list[Command]]:
    """What the store asks its server meanwhile."""
    asked: list[Command] = []
    ask = store._link.ask

    async def listen(*commands: Command) -> list[Reply]:
        asked.extend(commands)
        return await ask(*commands)

    store._link.ask = listen  # type: ignore[method-assign]
    yield asked
    store._link.ask = ask  # type: ignore[method-assign]


async def end(store: RedisStorage, job: Job) -> Job:
    """End a job with two events."""
    ended = next_of(job, status=JobStatus.FINISHED)
    assert await commit(store, write(ended, events=(event("ended"), event("over")))) == [APPLIED]
    return ended


async def live(store: RedisStorage, job: Job | None = None) -> Job:
    """A job from its birth to its end."""
    job = job or make_job()
    await create(store, job, events=(event("born"),))
    return await end(store, job)


async def test_the_end_of_a_job_and_its_story_are_shown_by_whoever_wrote_them_without_a_question(
    open_store: Open,
) -> None:
    async with running(open_store()) as store:
        ended = await live(store)
        async with counting(store) as asked:
            assert await store.get("job-1") == ended
            assert (await store.standing(["job-1"])).settled == {"job-1": ended}
            assert await told(store) == STORY
            assert [one.seq for one in await store.tail("job-1", 2)] == [3]
            assert asked == []
            standing = await store.standing(["job-1", "unknown"])
        assert (standing.settled, standing.going) == ({"job-1": ended}, {})
        assert len(asked) == 1


async def test_a_job_that_goes_on_is_always_looked_up(open_store: Open) -> None:
    async with running(open_store()) as store, running(open_store()) as other:
        job = make_job()
        await create(store, job)
        paused = next_of(job, status=JobStatus.QUARANTINED)
        assert await commit(store, write(paused)) == [APPLIED]
        assert await store.get("job-1") == paused
        assert await commit(other, write(ended := next_of(paused, status=JobStatus.FAILED))) == [APPLIED]
        assert await store.get("job-1") == ended
        assert (await store.standing(["job-1"])).settled == {"job-1": ended}


async def test_a_story_in_which_somebody_else_has_a_part_is_told_by_the_server(open_store: Open) -> None:
    async with running(open_store()) as store, running(open_store()) as other:
        await create(store, job := make_job(), events=(event("born"),))
        between = next_of(job)
        assert await commit(other, write(between, events=(event("elsewhere"),))) == [APPLIED]
        await end(store, between)
        assert await told(store) == [(1, "born"), (2, "elsewhere"), (3, "ended"), (4, "over")]

        await create(other, second := make_job("job-2"), events=(event("born"),))
        await end(store, second)
        assert await told(store, "job-2") == STORY


async def test_an_end_that_was_refused_is_none(open_store: Open) -> None:
    async with running(open_store()) as store, running(open_store()) as other:
        await create(store, job := make_job())
        await commit(other, write(won := next_of(job)))
        lost = next_of(job, status=JobStatus.FINISHED)
        assert await commit(store, write(lost), only("job-1")) == [STALE, STALE]
        assert await store.get("job-1") == won


async def test_an_end_is_forgotten_with_the_connection_and_nothing_is_shown_while_there_is_none(
    open_store: Open, server: RedisServer
) -> None:
    async with Proxy(server.port) as network:
        url = f"redis://127.0.0.1:{network.port}/0"
        async with running(open_store(url, patience_s=0.3)) as store:
            ended = await live(store)
            network.refuse_all = True
            network.cut()
            await asyncio.sleep(0.05)
            with pytest.raises(StorageUnavailable):
                await store.get("job-1")
            network.refuse_all = False
            async with counting(store) as asked:
                assert await store.get("job-1") == ended
                assert await told(store) == STORY
            assert len(asked) == 2


async def test_a_story_that_a_broken_connection_divides_is_told_by_the_server(
    open_store: Open, server: RedisServer
) -> None:
    async with (
        Proxy(server.port) as network,
        running(open_store(f"redis://127.0.0.1:{network.port}/0")) as store,
    ):
        await create(store, job := make_job(), events=(event("born"),))
        network.cut()
        await asyncio.sleep(0.05)
        ended = await end(store, job)
        async with counting(store) as asked:
            assert await store.get("job-1") == ended
            assert await told(store) == STORY
        assert len(asked) == 1


async def test_ends_are_remembered_for_a_moment_only(open_store: Open) -> None:
    async with running(open_store(ended_ttl_s=0.2)) as store:
        ended = await live(store)
        assert await store.get("job-1") == ended
        await asyncio.sleep(0.3)
        assert await store.get("job-1") is None
        assert await told(store) == []


async def test_what_is_large_or_of_long_ago_is_left_to_the_server(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "MANY", 3)
    async with running(open_store()) as store:
        large = await live(store, make_job("large", input={"x": "x" * lately.LARGE}))
        small = [await live(store, make_job(f"small-{n}")) for n in range(4)]
        async with counting(store) as asked:
            assert [await store.get(job.id) for job in small] == small
            assert await store.get("large") == large
            assert await told(store, "large") == STORY
        assert len(asked) == 3
        assert len(store._lately._ends) == 3
        await create(store, *[make_job(f"parked-{n}") for n in range(9)], events=(event("born"),))
        assert len(store._lately._stories) == 3


async def test_what_was_pruned_is_no_longer_told(open_store: Open) -> None:
    async with running(open_store()) as store:
        ended = await live(store)
        await create(store, open_one := make_job("job-2"), events=(event("born"),))
        await store.prune(await store.newest())
        assert await told(store) == []
        assert await store.get("job-1") == ended
        await end(store, open_one)
        assert await told(store, "job-2") == [(2, "ended"), (3, "over")]
