import asyncio

import pytest

from regista.errors import StorageUnavailable
from regista.model import CommitStatus
from regista.storage.redis import commit_batch
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    APPLIED,
    REPEATED,
    commit,
    event,
    make_job,
    next_of,
    running,
    shown,
    told,
    write,
)
from tests.proxy import Proxy
from tests.redis_server import RedisServer

from .conftest import Open


async def arrived(store: RedisStorage, job_id: str) -> None:
    for _ in range(1000):
        if await shown(store, job_id) is not None:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{job_id} did not arrive")


async def test_a_commit_whose_answer_was_lost_is_applied_once_and_answered(
    open_store: Open, server: RedisServer
) -> None:
    async with (
        Proxy(server.port) as network,
        running(open_store()) as watcher,
        running(open_store(f"redis://127.0.0.1:{network.port}/0")) as store,
    ):
        network.deaf = True  # the server hears us, and we do not hear it
        job = make_job()
        changes = [write(job, events=(event("once"),)), write(next_of(job), events=(event("twice"),))]
        waiting = asyncio.ensure_future(commit(store, *changes))
        await arrived(watcher, "job-1")
        network.deaf = False
        network.cut()
        assert await waiting == [APPLIED, APPLIED]
        assert await told(store) == [(1, "once"), (2, "twice")]


async def test_a_commit_that_was_given_up_is_known_when_it_is_sent_again(
    open_store: Open, server: RedisServer
) -> None:
    async with Proxy(server.port) as network:
        url = f"redis://127.0.0.1:{network.port}/0"
        async with running(open_store(url, patience_s=0.3)) as store:
            change = write(make_job(), events=(event("once"),))
            network.deaf = True
            with pytest.raises(StorageUnavailable):
                await commit(store, change)
            network.deaf = False
            assert await commit(store, change) == [REPEATED]
            assert await told(store) == [(1, "once")]


async def test_what_waits_together_travels_together(open_store: Open) -> None:
    async with running(open_store()) as store:
        before = store._scripts.calls
        await asyncio.gather(*(commit(store, write(make_job(f"j{n}"))) for n in range(200)))
        assert store._scripts.calls - before <= 2 + 200 // commit_batch.BATCH_CHANGES


async def test_a_full_parcel_is_followed_by_another(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_batch, "BATCH_BYTES", 10_000)

    async with running(open_store()) as store:
        before = store._scripts.calls
        jobs = [make_job(f"j{n}", data={"big": "x" * 6000}) for n in range(10)]
        assert await commit(store, *(write(job) for job in jobs)) == [APPLIED] * 10
        assert store._scripts.calls - before == 5
        assert (await store.load([job.id for job in jobs]))[0] == jobs


async def test_what_cannot_be_stored_does_not_trouble_its_neighbours(open_store: Open) -> None:
    async with running(open_store()) as store:
        good, bad = make_job("good"), make_job("bad", data={"odd": object()})
        outcomes = await store.commit([write(bad), write(good), write(bad)], "me")
        assert [outcome.kind for outcome in outcomes] == [
            CommitStatus.UNSTORABLE,
            APPLIED,
            CommitStatus.UNSTORABLE,
        ]
        only_bad = await store.commit([write(bad)], "me")
        assert only_bad[0].kind is CommitStatus.UNSTORABLE


async def test_what_nobody_can_pack_concerns_its_own_batch_only(open_store: Open) -> None:
    async with running(open_store()) as store:
        with pytest.raises(StorageUnavailable, match="surrogates not allowed"):
            await store.commit([write(make_job("bad"), keep_lease_s=1.0)], "half a character: \udc80")
        assert await commit(store, write(make_job("good"))) == [APPLIED]


async def test_scripts_that_are_forgotten_again_and_again_are_loaded_again_and_again(
    open_store: Open, server: RedisServer
) -> None:
    async def flush_scripts(stop: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not stop.is_set():
            writer.write(b"SCRIPT FLUSH SYNC\r\n")
            await reader.readline()
        writer.close()
        await writer.wait_closed()

    stop = asyncio.Event()
    async with running(open_store()) as store:
        flushing_scripts = asyncio.ensure_future(flush_scripts(stop))
        try:
            for turn in range(10):
                jobs = [make_job(f"j{turn}-{n}") for n in range(10)]
                calls = [commit(store, write(job, events=(event(),))) for job in jobs]
                assert await asyncio.gather(*calls) == [[APPLIED]] * 10
                await asyncio.gather(store.workers(), store.now(), store.messages(1))
        finally:
            stop.set()
            await flushing_scripts
