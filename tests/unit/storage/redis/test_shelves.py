"""Items and counters on a real server: once for each call, and nothing is left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from regista.model import Quota
from regista.storage.base import Hint, HintKind, find_record
from regista.testing.conformance.storage.kit import (
    APPLIED,
    ManualClock,
    commit,
    make_job,
    running,
    shown,
    write,
)
from regista.testing.conformance.storage.shelves import SHELF, item, keys
from tests.proxy import Proxy
from tests.redis_clock import HandMovedRedis
from tests.redis_server import RedisServer

from .conftest import Open


async def until(look: Callable[[], Awaitable[object]]) -> None:
    """Return when there is something to see."""
    for _ in range(1000):
        if await look() is not None:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not arrive")


async def test_a_put_whose_answer_was_lost_is_carried_out_once_and_answered_the_same(
    open_store: Open, server: RedisServer
) -> None:
    async with (
        Proxy(server.port) as network,
        running(open_store()) as watcher,
        running(open_store(f"redis://127.0.0.1:{network.port}/0")) as store,
    ):
        await store.put_records([item("password")])
        network.deaf = True  # the server hears us, and we do not hear it
        waiting = asyncio.ensure_future(
            store.put_records([item("password", None, expected=1), item("other")])
        )
        await until(lambda: find_record(watcher, SHELF, "other"))
        network.deaf = False
        network.cut()
        assert await waiting == [True, True]
        found = await watcher.records(SHELF)
        assert [(each.key, each.revision) for each in found] == [("other", 1)]


async def test_a_creation_whose_answer_was_lost_counts_once(open_store: Open, server: RedisServer) -> None:
    async with (
        Proxy(server.port) as network,
        running(open_store()) as watcher,
        running(open_store(f"redis://127.0.0.1:{network.port}/0")) as store,
    ):
        network.deaf = True
        change = write(make_job(), quota=Quota("ann", 1, 60.0), records=(item("a"),))
        waiting = asyncio.ensure_future(commit(store, change))
        await until(lambda: shown(watcher, "job-1"))
        network.deaf = False
        network.cut()
        assert await waiting == [APPLIED]
        assert await watcher.quota_used("ann") == 1
        (found,) = await watcher.records(SHELF)
        assert found.revision == 1


async def test_what_is_written_at_the_same_time_travels_together(open_store: Open) -> None:
    async with running(open_store()) as store:
        before = store._scripts.calls
        outcomes, *answers = await asyncio.gather(
            commit(store, write(make_job())), *(store.put_records([item(f"{n:03}")]) for n in range(20))
        )
        assert (outcomes, answers) == ([APPLIED], [[True]] * 20)
        assert store._scripts.calls - before == 2  # the change, and all items
        assert len(await keys(store)) == 20


async def test_everybody_who_shares_the_store_hears_of_an_item(open_store: Open) -> None:
    async with running(open_store()) as one, running(open_store()) as two:
        heard = asyncio.Event()
        two.subscribe(lambda hint: heard.set() if hint == Hint(HintKind.RECORD, SHELF) else None)
        await one.put_records([item("a", due=datetime.now(UTC))])
        await asyncio.wait_for(heard.wait(), 5)


async def test_what_ended_leaves_no_key_behind(server: RedisServer, namespace: str) -> None:
    clock = ManualClock()
    async with running(HandMovedRedis(server.url, clock, namespace=namespace)) as store:
        writes = [item(f"{n:03}", ttl_s=5, due=clock.now()) for n in range(150)]
        assert all(await store.put_records(writes))
        clock.move(6)
        await store.put_records([item("a", None)])
        await store.put_records([item("a", None)])  # a hundred at a time
        (left,) = await store._ask(("KEYS", f"regista:{{{namespace}}}:*"))
        names = {key.decode().rsplit(":", 1)[-1] if b"done:" not in key else "done" for key in left}
        assert names == {"clock", "pulse", "done"}
        assert await keys(store) == []


async def test_buckets_and_counts_go_away_by_themselves(open_store: Open, namespace: str) -> None:
    async with running(open_store()) as store:
        await store.take_tokens("b", 1, 10, 60.0)
        await commit(store, write(make_job(), quota=Quota("ann", 5, 120.0)))
        prefix = f"regista:{{{namespace}}}:"
        bucket, count = await store._ask(("PTTL", f"{prefix}bucket:b"), ("PTTL", f"{prefix}count:ann"))
        assert 60_000 < bucket <= 67_000
        assert 170_000 < count <= 181_000


async def test_two_instances_take_from_one_bucket(open_store: Open) -> None:
    async with running(open_store()) as one, running(open_store()) as two:
        wishes = [store.take_tokens("b", 1, 7, 3600.0) for _ in range(5) for store in (one, two)]
        assert [taken.ok for taken in await asyncio.gather(*wishes)].count(True) == 7
