import asyncio
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from regista.errors import StorageFailed, StorageUnavailable
from regista.model import AwaitTimer, JobStatus, TaskWrite
from regista.storage.base import Heartbeat, Hint, HintKind, shared_secret
from regista.storage.redis import commit_batch
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    ALL,
    APPLIED,
    FINISHED,
    OFFERED,
    START,
    V1,
    ManualClock,
    at,
    claim,
    claim_tasks,
    commit,
    create,
    dispatch,
    due,
    event,
    fan_out,
    job_of,
    make_job,
    make_task,
    make_worker,
    message,
    next_of,
    offers,
    running,
    shown,
    task_of,
    told,
    write,
)
from tests.redis_clock import HandMovedRedis
from tests.redis_server import RedisServer

from .conftest import Open

#: Everything that a record may hold, where a script could spoil it.
ODD: dict[str, Any] = {
    "bytes": bytes(range(256)),
    "text": "".join(map(chr, range(256))) + "\U0001f3ac",
    "big": [2**63 - 1, -(2**63), 2**64 - 1, 2**53 + 1],
    "small": [0.1, 1e-300, -0.0, 1.7976931348623157e308],
    "none": [None, {}, [], ""],
}


async def test_bodies_survive_byte_for_byte(open_store: Open) -> None:
    async with running(open_store()) as store:
        job, task = make_job("odd", data=ODD), make_task("odd-2", params=ODD, client="\x00\nü")
        await create(store, job, events=(event("told", detail=ODD),))
        await dispatch(store, task)
        assert await job_of(store, "odd") == job
        assert repr((await job_of(store, "odd")).data) == repr(ODD)
        (offered,) = await claim_tasks(store, make_worker(session=2**50 + 1))
        assert repr(offered.params) == repr(ODD)
        assert offered == await task_of(store, "odd-2_1_0")
        assert offered.session == 2**50 + 1
        assert repr(((await store.outbox(0, ALL)).entries)[0].events[0].detail) == repr(ODD)
        assert repr((await store.tail("odd", 0))[0].detail) == repr(ODD)


async def test_the_price_of_an_offer_is_exact(open_store: Open) -> None:
    async with running(open_store()) as store:
        for n, price in enumerate((0.1, 0.5, 3.0, 1e-9, 0.0)):
            await dispatch(store, make_task(f"j{n}"))
            worker = make_worker()
            profile = type(worker.profile)(cost_per_second=price)
            (task,) = await claim_tasks(store, make_worker(profile=profile))
            assert task.price == (await task_of(store, f"j{n}_1_0")).price == price


async def test_deadlines_are_exact_to_the_microsecond(open_store: Open) -> None:
    async with running(open_store()) as store:
        instants = [START + timedelta(microseconds=n) for n in (1, 0, 999_999, 123_457, 123_456)]
        for n, until in enumerate(instants):
            wait = {"status": JobStatus.WAITING_FOR_TIMER, "wait": AwaitTimer(until, "next")}
            await create(store, make_job(f"j{n}", **wait))
        assert [at for _, at in await due(store)] == sorted(instants)
        assert len(await due(store, START + timedelta(microseconds=123_456))) == 3
        assert await store.next_due() == START


async def test_a_deadline_that_is_far_off_wakes_nobody(open_store: Open) -> None:
    async with running(open_store()) as store:
        heard: list[HintKind] = []
        store.subscribe(lambda hint: heard.append(hint.kind))
        for job_id, seconds in (("far", 60), ("near", 1)):
            wait = AwaitTimer(datetime.now(UTC) + timedelta(seconds=seconds), "next")
            job = make_job(job_id, status=JobStatus.WAITING_FOR_TIMER, wait=wait)
            assert await commit(store, write(job)) == [APPLIED]
            await asyncio.sleep(0)
            assert (HintKind.DEADLINE in heard) == (job_id == "near")


def test_nothing_grows_for_ever(open_store: Open, server: RedisServer, namespace: str) -> None:
    async def keys(store: RedisStorage) -> list[bytes]:
        (found,) = await store._ask(("KEYS", f"{store._prefix}*"))
        return [key for key in found if b":done:" not in key]  # these go by themselves, some minutes later

    async def play() -> None:
        async with running(open_store(ended_ttl_s=1.0)) as store:
            for first in range(0, 1000, 250):
                jobs = [make_job(f"job-{n:04}", **waits) for n in range(first, first + 250)]
                tasks = [make_task(job.id, client=f"c{job.id}", priority=1.0) for job in jobs]
                writes = [
                    write(job, tasks=(TaskWrite(task),), events=(event(),))
                    for job, task in zip(jobs, tasks, strict=True)
                ]
                assert await commit(store, *writes) == [APPLIED] * 250
                assert len(await offers(store, make_worker(f"w{first}"))) == 250
                ends = [write(next_of(job, **FINISHED), events=(event(),)) for job in jobs]
                assert await commit(store, *ends) == [APPLIED] * 250
            worker = await store.register(make_worker(), 30)
            await store.forget_worker("w1", worker.session)
            await store.prune(((await store.outbox(0, ALL)).entries)[-1].number)
            assert await shown(store, "job-0999") is not None
            await asyncio.sleep(1.1)
            assert await shown(store, "job-0999") is None
            assert await store.stranded([], ALL) == []  # a chore that sweeps, too
            left = sorted(key.removeprefix(store._prefix.encode()) for key in await keys(store))
            assert left == [b"counters", b"outbox", b"pulse"]

    waits = {"status": JobStatus.RUNNING}
    asyncio.run(play())


async def test_an_outbox_that_nobody_prunes_keeps_the_newest(open_store: Open) -> None:
    async with running(open_store(outbox_limit=10)) as store:
        for n in range(30):
            await create(store, make_job(f"j{n}"), events=(event(f"{n}"),))
        entries = (await store.outbox(0, ALL)).entries
        assert [entry.job_id for entry in entries] == [f"j{n}" for n in range(20, 30)]
        assert await told(store, "j19") == []
        assert await told(store, "j20") == [(1, "20")]


async def test_an_outbox_that_a_history_reads_is_never_cut(open_store: Open) -> None:
    async with running(open_store()) as store:
        for n in range(30):
            await create(store, make_job(f"j{n}"), events=(event(f"{n}"),))
        assert len((await store.outbox(0, ALL)).entries) == 30


async def test_numbers_go_on_above_a_gap_after_a_leap(open_store: Open) -> None:
    async with running(open_store()) as store:
        await create(store, make_job("before"), events=(event("1"),))
        newest = (await store.outbox(0, 0)).newest
        assert await store.skip_outbox_numbers(100) == newest
        await create(store, make_job("after"), events=(event("2"),))
        assert (await store.outbox(0, 0)).newest == newest + 101
        assert [entry.number for entry in (await store.outbox(newest, ALL)).entries] == [newest + 101]


async def test_the_tail_of_a_long_job_is_read_from_its_end(open_store: Open) -> None:
    async with running(open_store()) as store:
        job = make_job()
        changes = []
        for n in range(300):
            changes.append(write(job, events=(event(f"{n}a"), event(f"{n}b"))))
            job = next_of(job)
        assert set(await commit(store, *changes)) == {APPLIED}
        for after in (0, 1, 127, 128, 129, 471, 472, 473, 598, 599, 600, 700):
            tail = await store.tail("job-1", after)
            assert [event.seq for event in tail] == list(range(after + 1, 601))


@pytest.mark.slow
async def test_a_large_fan_out_costs_as_much_for_each_branch_as_a_small_one(open_store: Open) -> None:
    async def cost(store: RedisStorage, job_id: str, branches: int) -> float:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await fan_out(store, branches, job_id)
        assert len(await offers(store)) == branches
        assert len(await store.tasks_of(job_id)) == branches
        await commit(store, write(next_of(await job_of(store, job_id), **FINISHED)))
        assert await store.tasks_of(job_id) == []
        return (loop.time() - begin) / branches

    async with running(open_store(patience_s=8)) as store:
        await cost(store, "warm", 100)
        small = await cost(store, "small", 1000)
        assert await cost(store, "large", 10_000) < 5 * small


async def test_a_server_that_comes_back_goes_on_where_it_was(mortal: RedisServer) -> None:
    async with running(RedisStorage(mortal.url, patience_s=0.3)) as store:
        await create(store, make_job("before"))
        mortal.kill()
        for call in (
            shown(store, "before"),
            commit(store, write(make_job("lost"))),
            store.claim_ready("me", [V1], 1, 30),
        ):
            with pytest.raises(StorageUnavailable):
                await call
        mortal.start()
        await create(store, make_job("after"))
        assert await claim(store) == ["before", "after"]


async def test_a_store_that_is_stopped_while_the_server_is_away_stops(mortal: RedisServer) -> None:
    async with running(RedisStorage(mortal.url, patience_s=0.3)) as store:
        mortal.kill()
        waiting = asyncio.ensure_future(commit(store, write(make_job())))
        await asyncio.sleep(0)
        await store.stop()
        with pytest.raises(StorageUnavailable):
            await waiting


async def test_no_lease_lapses_for_one_lease_after_a_restart_of_the_server(mortal: RedisServer) -> None:
    async with running(RedisStorage(mortal.url, patience_s=3)) as store:
        await create(store, make_job())
        assert await claim(store, "me", lease_s=0.3) == ["job-1"]
        worker = await store.register(make_worker(), 0.3)
        assert await store.workers(lapsed_only=True) == []
        mortal.kill()
        await asyncio.sleep(0.4)
        mortal.start()
        assert (await store.workers(lapsed_only=True), await claim(store, "you")) == ([], [])
        await asyncio.sleep(0.15)
        assert (await store.workers(lapsed_only=True), await claim(store, "you")) == ([], [])
        assert await store.extend_leases("me", ["job-1"], 0.3) == ["job-1"]
        await asyncio.sleep(0.35)
        assert await store.workers(lapsed_only=True) == [worker]
        assert await claim(store, "you") == ["job-1"]


async def test_no_lease_lapses_for_one_lease_after_a_long_silence(
    server: RedisServer, namespace: str
) -> None:
    clock = ManualClock(START)
    # The clock of the tests, but without the word that somebody was there all the while.
    quiet = HandMovedRedis(server.url, clock, namespace=namespace, seen=False)
    async with running(quiet) as store:
        worker = await store.register(make_worker(), 30)
        await create(store, make_job())
        assert await claim(store, "me", lease_s=30) == ["job-1"]
        clock.move(4)
        assert await store.workers(lapsed_only=True) == []
        clock.move(60)
        assert (await store.workers(lapsed_only=True), await claim(store, "you")) == ([], [])
        for _ in range(7):
            clock.move(4)
            assert (await store.workers(lapsed_only=True), await claim(store, "you")) == ([], [])
        clock.move(4)
        assert (await store.workers(lapsed_only=True), await claim(store, "you")) == ([worker], ["job-1"])


async def test_leases_lapse_one_lease_after_the_servers_clock_was_set_back(
    server: RedisServer, namespace: str
) -> None:
    clock, an_hour_ahead = ManualClock(START), ManualClock(at(3600))
    async with running(HandMovedRedis(server.url, an_hour_ahead, seen=False, namespace=namespace)) as store:
        await create(store, make_job("job-1"))
        await store.register(make_worker(), 30)
        assert await store.workers(lapsed_only=True) == []
        assert await claim(store, "gone") == ["job-1"]
        assert await store.lead("chore", "gone", 30)
    async with running(HandMovedRedis(server.url, clock, seen=False, namespace=namespace)) as store:
        assert await claim(store) == []
        assert await store.workers(lapsed_only=True) == []
        for _ in range(7):  # somebody looks all the while
            clock.move(4.5)
            found = await claim(store), [worker.id for worker in await store.workers(lapsed_only=True)]
        assert found == (["job-1"], ["w1"])
        assert await store.lead("chore", "me", 30)


async def test_a_right_that_was_taken_away_is_an_outage_for_who_is_running(mortal: RedisServer) -> None:
    mortal.ask("ACL", "SETUSER", "stage", "on", ">sesame", "~*", "&*", "+@all")

    url = f"redis://stage:sesame@127.0.0.1:{mortal.port}/0"
    async with running(RedisStorage(url, patience_s=0.2)) as store:
        await create(store, make_job())
        mortal.ask("ACL", "SETUSER", "stage", "-evalsha", "-hget")
        for ask in (store.workers, lambda: shown(store, "job-1")):
            with pytest.raises(StorageUnavailable, match="NOPERM"):
                await ask()
        mortal.ask("ACL", "SETUSER", "stage", "+@all")
        assert await shown(store, "job-1") is not None


async def test_two_namespaces_on_one_server_know_nothing_of_each_other(
    server: RedisServer, namespace: str
) -> None:
    one, other = (RedisStorage(server.url, namespace=f"{namespace}-{n}") for n in range(2))
    async with running(one), running(other):
        heard: list[Hint] = []
        other.subscribe(heard.append)
        await create(one, make_job(), events=(event(),))
        assert (await claim(other), (await other.outbox(0, ALL)).entries, heard) == ([], [], [])
        assert await shared_secret(one, "x") != await shared_secret(other, "x")
        assert await claim(one) == ["job-1"]


async def test_databases_of_one_server_are_told_apart_by_the_url(server: RedisServer, namespace: str) -> None:
    urls = [f"redis://127.0.0.1:{server.port}/{n}" for n in (0, 1)]
    one, other = (RedisStorage(url, namespace=namespace) for url in urls)
    async with running(one), running(other):
        await create(one, make_job())
        assert await shown(other) is None


async def test_a_slow_server_is_waited_for(mortal: RedisServer) -> None:
    async with running(RedisStorage(mortal.url, patience_s=3)) as store:
        mortal.kill(signal.SIGSTOP)
        waiting = asyncio.ensure_future(commit(store, write(make_job())))
        await asyncio.sleep(0.2)
        mortal.kill(signal.SIGCONT)
        assert await waiting == [APPLIED]


def test_one_spoiled_record_does_not_stop_the_others(
    open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(open_store()) as store:
            await create(store, make_job("bad"), make_job("good"))
            await store._ask(("HSET", store._job_key("bad"), "b", b"\xc1 not a record"))
            assert [job.id for job in await store.stranded([], ALL)] == ["good"]
            assert await claim(store) == ["good"]

    asyncio.run(play())
    assert "a record cannot be read and is left alone" in caplog.text


async def test_nothing_is_offered_to_a_session_that_was_replaced(open_store: Open) -> None:
    heard: list[Hint] = []
    async with running(open_store()) as store:
        await dispatch(store, make_task())
        old = await store.register(make_worker(), 30)
        new = await store.register(make_worker(), 30)
        store.subscribe(heard.append)
        assert await offers(store, old) == []
        # Whoever asked learns that the worker is gone from there, and that the lane still waits.
        assert [hint.kind for hint in heard] == [HintKind.WORKER, HintKind.TASK]
        assert await offers(store, new) == ["job-1_1_0"]


async def test_nothing_is_offered_to_a_worker_whose_lease_is_over(
    server: RedisServer, namespace: str
) -> None:
    clock = ManualClock(START)
    async with running(HandMovedRedis(server.url, clock, namespace=namespace)) as store:
        await dispatch(store, make_task())
        worker = await store.register(make_worker(), 30)
        clock.move(31)
        assert await store.claim_tasks(worker, [make_task().queue_key], ALL, START) == ([], False)
        late = make_task("late", state=OFFERED, worker_id="w1", session=worker.session, offered_at=START)
        (outcome,) = await store.commit([write(make_job("late"), tasks=(TaskWrite(late),))], "me")
        assert outcome.not_offered == (late.id,)
        assert (await store.heartbeat([Heartbeat(worker.id, worker.session, 30)]))[0]
        assert await offers(store, worker) == ["job-1_1_0", "late_1_0"]


@pytest.mark.parametrize(("ahead", "since"), [(1500, at(-900)), (5000, at(-600))])
async def test_the_oldest_of_a_line_is_found_behind_many_with_a_priority(
    open_store: Open, ahead: int, since: datetime
) -> None:
    async with running(open_store(patience_s=8)) as store:
        urgent = [make_task(index=n, priority=20.0, queued_at=at(-600)) for n in range(ahead)]
        plain = [make_task(index=ahead + n, queued_at=at(n - 900)) for n in range(2)]
        await dispatch(store, *urgent, *plain)
        (row,) = await store.queue_status()
        # Behind five thousand of them nobody looks: then it is the oldest of those that have one.
        assert (row.waiting, row.oldest) == (ahead + 2, since)


async def test_where_the_entries_of_a_long_job_are_is_forgotten_with_them(open_store: Open) -> None:
    async with running(open_store()) as store:
        job = make_job()
        for n in range(300):
            assert await commit(store, write(job, events=(event(f"{n}"),))) == [APPLIED]
            job = next_of(job)
            if n % 50 == 0:
                await store.prune((await store.outbox(0, 0)).newest)
        (kept,) = await store._ask(("LLEN", f"{store._prefix}events:job-1"))
        assert kept <= 2
        assert [event.seq for event in await store.tail("job-1", 0)] == list(range(252, 301))


async def test_a_flush_that_fails_for_good_is_reported(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def garbled(answer: bytes) -> None:
        raise RuntimeError("an answer that makes no sense")

    monkeypatch.setattr(commit_batch, "decode_answer", garbled)
    store = open_store()
    await store.start()
    failed = asyncio.ensure_future(store.failed())
    with pytest.raises(StorageFailed, match="makes no sense"):
        await create(store, make_job())
    assert "makes no sense" in str(await asyncio.wait_for(failed, 1))
    with pytest.raises(StorageFailed):
        await store.stop()


async def test_unreadable_entries_and_messages_are_skipped(open_store: Open) -> None:
    async with running(open_store()) as store:
        for name in ("bad", "good"):
            parts = {"events": (event("told"),), "messages": (message(f"to {name}", to_job=name),)}
            await dispatch(store, make_task(name), **parts)
        prefix = store._prefix
        ((number, _), _) = (await store._ask(("XRANGE", f"{prefix}outbox", "-", "+")))[0]
        await store._ask(
            ("HSET", f"{prefix}words", "to bad", b"\xc1"),
            ("XDEL", f"{prefix}outbox", number),
            ("XADD", f"{prefix}outbox", "9999999999999999-0", "j", "bad", "s", 1, "b", b"\xc1"),
        )
        assert [one.id for one in await store.messages(ALL)] == ["to good"]
        assert [entry.job_id for entry in (await store.outbox(0, ALL)).entries] == ["good"]
