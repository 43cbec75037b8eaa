"""The store is away for a while: callers are told, nobody gives up, and everything goes on by itself."""

import asyncio
import logging
import time
from typing import Any

import msgspec
import pytest

from regista import Job, JobStatus, MemoryStorage, OrchestratorEngine, Submission, Worker
from regista.blueprint import ActionFactory, JobContext
from regista.clock import SystemClock
from regista.config import Config
from regista.errors import StorageUnavailable
from regista.model import TaskResult
from regista.workers.polling.service import PollingService
from regista.workers.protocol.messages import Heartbeat, Registration
from tests.support import script

#: What a store answers with errors while nobody can reach it.
_CALLS = (
    "commit", "load", "get", "tasks_of", "claim_ready", "extend_leases", "stranded", "claim_tasks", "queue_status", "held_by",
    "holders", "due", "next_due", "messages", "register", "heartbeat", "workers", "outbox", "prune", "tail", "lead",
    "put_records", "records", "due_records",
)  # fmt: skip


class Remote(MemoryStorage):
    """A store at the other end of a line that can be cut; `after` lets writes arrive and loses the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.away = self.after = False
        #: What cannot be reached.
        self.calls = set(_CALLS)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _CALLS or name not in self.calls:
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.away and not (self.after and name == "commit"):
                raise StorageUnavailable("nobody answers")
            answer = await found(*arguments, **options)
            if self.away:
                raise StorageUnavailable("the answer was lost")
            return answer

        return call


def start(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("work", transitions={"success": "done"})


@pytest.mark.parametrize("after", [False, True], ids=["nothing arrives", "writes arrive"])
def test_a_job_goes_on_when_the_store_is_back(after: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        storage, gate = Remote(), asyncio.Event()
        worker = Worker("w", concurrency=4)

        @worker.task("work")
        async def work(params: dict[str, Any]) -> dict[str, Any]:
            await gate.wait()
            return {"n": 1}

        director = OrchestratorEngine(storage, Config(lease_s=0.9))
        director.register_blueprint(script(start, "done"))
        director.add_worker(worker)
        await director.start()
        job = await director.submit("script")
        # when: the line is cut for longer than a lease, and the result comes meanwhile
        storage.away, storage.after = True, after
        gate.set()
        with pytest.raises(StorageUnavailable):
            await director.submit("script")
        await asyncio.sleep(1.5)
        storage.away = False
        # then
        ended = await director.wait(job.id, 8)
        assert (ended.status, ended.data) == (JobStatus.FINISHED, {"n": 1})
        events = [event.type for event in await director.events(job.id)]
        assert "task_lost" not in events  # nothing expired: a full lease has not passed since
        again = await director.wait((await director.submit("script")).id, 5)
        assert again.status is JobStatus.FINISHED
        await director.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.records == []


async def test_a_job_that_was_claimed_when_the_store_went_away_does_not_wait_for_its_lease() -> None:
    storage = Remote()

    def end(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done")

    director = OrchestratorEngine(storage, Config(lease_s=60.0))
    director.register_blueprint(script(end, "done"))
    await director.start()
    # given: jobs in the ready queue, which can be claimed, but nothing can be written
    storage.calls = {"commit"}
    jobs = await director.submit_many([Submission(blueprint="script") for _ in range(200)])
    storage.away = True
    await asyncio.sleep(0.5)
    # when
    storage.away = False
    # then
    async with asyncio.timeout(5):
        ended = [await director.wait(job.id) for job in jobs if isinstance(job, Job)]
    assert {job.status for job in ended} == {JobStatus.FINISHED}
    await director.stop()


async def test_what_a_polling_worker_told_while_the_store_was_away_is_still_in_its_hands() -> None:
    storage = Remote()
    director = OrchestratorEngine(storage, Config())
    director.register_blueprint(script(start, "done"))
    await director.start()
    desk = PollingService(director.workers, director.dispatcher, SystemClock(), 30.0, 45.0)
    await desk.register(Registration(worker_id="w", supported_skills=["work"]))
    job = await director.submit("script")
    async with desk.poll("w", 5) as tasks:
        (task,) = tasks
    result = TaskResult(task_id=task.attempt_id, job_id=job.id, worker_id="w")
    director.workers.started(task.attempt_id)
    storage.away = True
    with pytest.raises(StorageUnavailable):
        await desk.result(result)
    storage.away = False
    # then: beats that do not list it are believed as little as before
    for stamp in (1.0, 2.0, 3.0):
        said = Heartbeat(current_tasks=[], timestamp=stamp)
        assert (await desk.beat("w", said, time.monotonic())).stop == ()
    verdict, known = await desk.result(result)
    assert verdict.accepted
    assert known is not None
    assert known.transitions == {"success": "done"}
    await desk.close()
    await director.stop()


def test_a_stop_in_the_middle_of_messages_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """The messages are stored, and the next start delivers them: nothing to be told about."""

    class Slow(MemoryStorage):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.gate = asyncio.Event(), asyncio.Event()

        async def messages(self, limit: int) -> Any:
            found = await super().messages(limit)
            if found:
                self.asked.set()
                await self.gate.wait()
            return found

    def parent(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("child", {}, transitions={"success": "done"})

    def child(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("over")

    async def slow(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        storage = Slow()
        director = OrchestratorEngine(storage, Config())
        director.register_blueprint(script(parent, "done", name="parent"))
        director.register_blueprint(script(child, "over", name="child"))
        director.register_blueprint(script(slow, "end", name="slow"))
        await director.start()
        await director.submit("slow")  # a stop takes more than one turn of the loop
        await director.submit("parent")
        await asyncio.wait_for(storage.asked.wait(), 5)
        storage.gate.set()  # whoever waited for it goes on in the next turn; the stop begins in this one
        await director.engine.stop()
        await director.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.records == []


def test_a_record_that_nobody_can_read_keeps_no_other_attempt_of_a_dead_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Spoiled(MemoryStorage):
        bad = ""

        async def load(self, jobs: Any, tasks: Any = ()) -> Any:
            if self.bad in jobs:
                raise msgspec.ValidationError("not a record")
            return await super().load(jobs, tasks)

    async def main() -> None:
        storage, gate, begun = Spoiled(), asyncio.Event(), asyncio.Semaphore(0)
        worker = Worker("w", concurrency=2)

        @worker.task("work")
        async def work(params: dict[str, Any]) -> dict[str, Any]:
            begun.release()
            await gate.wait()
            return {}

        director = OrchestratorEngine(storage, Config())
        director.register_blueprint(script(start, "done"))
        director.add_worker(worker)
        await director.start()
        bad, good = [await director.submit("script") for _ in range(2)]
        for _ in range(2):
            await asyncio.wait_for(begun.acquire(), 5)
        (known,) = await storage.workers()
        # when: one of the two jobs that the dead worker had cannot be read
        storage.bad = bad.id
        await director.workers.remove(known.id, known.session, lapsed=False)
        # then: the other one is tried again
        told = [event.type for event in await director.events(good.id)]
        assert "task_lost" in told
        storage.bad = ""
        gate.set()
        await director.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "cannot be read and is left alone: not a record" in caplog.text
