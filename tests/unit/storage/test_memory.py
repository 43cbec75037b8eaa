"""What a stranger may see of a write that is on its way."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from regista.model import AwaitTimer, JobStatus, TaskWrite
from regista.storage.base import Hint, HintKind, shared_secret
from regista.storage.journal import JournalBatch, NoJournal
from regista.storage.memory import MemoryStorage
from regista.testing.conformance.storage.kit import (
    ALL,
    FINISHED,
    START,
    V1,
    event,
    make_job,
    make_task,
    make_worker,
    next_of,
    running,
    shown,
    write,
)


class GatedJournal(NoJournal):
    """Lets a batch through when it is told to."""

    def __init__(self) -> None:
        self.open_gate = asyncio.Event()
        self.waiting = 0

    async def write(self, batch: JournalBatch) -> None:
        self.waiting += 1
        await self.open_gate.wait()


def play(body: Callable[[MemoryStorage, GatedJournal], Awaitable[None]]) -> None:
    async def run() -> None:
        journal = GatedJournal()
        async with running(MemoryStorage(journal=journal)) as storage:
            try:
                await body(storage, journal)
            finally:
                journal.open_gate.set()

    asyncio.run(run())


async def waits(journal: GatedJournal, *calls: Awaitable[Any]) -> list[Any]:
    """What these return, after checking that each is held back until the flush."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(20):
        await asyncio.sleep(0)
    assert journal.waiting == 1
    assert [task.done() for task in tasks] == [False] * len(tasks)
    journal.open_gate.set()
    return list(await asyncio.gather(*tasks))


def test_get_waits_for_the_flush_and_load_does_not() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        job = make_job()
        committing = asyncio.create_task(storage.commit([write(job)], "me"))
        await asyncio.sleep(0)
        assert await storage.load(["job-1"]) == ([job], [])
        assert await storage.claim_ready("me", [V1], 1, 30) == [job]
        assert (await waits(journal, committing, shown(storage, "job-1")))[1] == job

    play(body)


def test_get_of_a_job_that_has_just_ended_waits_too() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        job = make_job()
        ended = next_of(job, **FINISHED)
        committing = asyncio.create_task(storage.commit([write(job), write(ended)], "me"))
        await asyncio.sleep(0)
        assert (await waits(journal, committing, shown(storage, "job-1")))[1] == ended

    play(body)


def test_what_is_not_flushed_is_in_no_outbox_and_gives_no_hint() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        committing = asyncio.create_task(storage.commit([write(make_job(), events=(event(),))], "me"))
        await asyncio.sleep(0.001)
        assert ((await storage.outbox(0, ALL)).entries, await storage.tail("job-1", 0), hints) == ([], [], [])
        await waits(journal, committing)
        assert len((await storage.outbox(0, ALL)).entries) == len(await storage.tail("job-1", 0)) == 1
        assert hints

    play(body)


def test_a_repetition_is_answered_after_the_flush_of_the_first() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        change = write(make_job())
        first = asyncio.create_task(storage.commit([change], "me"))
        await asyncio.sleep(0.001)
        await waits(journal, first, storage.commit([change], "me"), storage.commit([write(make_job())], "me"))

    play(body)


def test_an_offer_is_handed_over_after_its_flush() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        journal.open_gate.set()
        await storage.commit([write(make_job(), tasks=(TaskWrite(make_task()),))], "me")
        journal.open_gate.clear()
        journal.waiting = 0
        claiming = asyncio.create_task(storage.claim_tasks(make_worker(), [make_task().queue_key], 1, START))
        await asyncio.sleep(0)
        (((task,), _), job) = await waits(journal, claiming, shown(storage, "job-1"))
        assert (task.worker_id, job.id) == ("w1", "job-1")

    play(body)


def test_a_secret_is_told_to_nobody_before_it_is_durable() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        first = asyncio.create_task(shared_secret(storage, "approval"))
        await asyncio.sleep(0.001)
        one, other = await waits(journal, first, shared_secret(storage, "approval"))
        assert one == other

    play(body)


def test_asking_for_tasks_when_none_wait_costs_no_flush() -> None:
    async def body(storage: MemoryStorage, journal: GatedJournal) -> None:
        assert await storage.claim_tasks(make_worker(), [make_task().queue_key], 5, START) == ([], True)
        await storage.prune(0)
        await asyncio.sleep(0.001)
        assert journal.waiting == 0

    play(body)


async def test_a_deadline_that_is_far_off_wakes_nobody() -> None:
    async with running(MemoryStorage()) as storage:
        heard: list[HintKind] = []
        storage.subscribe(lambda hint: heard.append(hint.kind))
        for job_id, seconds in (("far", 60), ("near", 1)):
            wait = AwaitTimer(datetime.now(UTC) + timedelta(seconds=seconds), "next")
            job = make_job(job_id, status=JobStatus.WAITING_FOR_TIMER, wait=wait)
            await storage.commit([write(job)], "me")
            assert (HintKind.DEADLINE in heard) == (job_id == "near")
