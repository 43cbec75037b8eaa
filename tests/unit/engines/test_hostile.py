"""What users do to an orchestrator without meaning to: none of it may hurt anybody else's job."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regista import (
    ActionFactory,
    Config,
    EventType,
    Job,
    JobContext,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    StateMachineBlueprint,
    TaskContext,
    Worker,
)
from regista.engines.base import Submission
from regista.engines.handler_runner import HandlerRunner
from regista.errors import NotSerializable, OrchestratorStopped, StorageFailed
from regista.model import AwaitChild, Change, JobMessage, JobMessageKind
from regista.serialization import MAX_BYTES
from regista.testing.orchestrator import TestOrchestrator
from tests import support
from tests.stopwatch import Stopwatch
from tests.support import one_task


class Panic(BaseException):
    """As libraries raise it that shall not be caught with `Exception`: pyo3, func_timeout."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def script(handler: Any, *, blocking: bool = False) -> StateMachineBlueprint:
    """One state whose handler is `handler`, and an end."""
    blueprint = StateMachineBlueprint("script")
    blueprint.handler_for("start", is_start=True, targets=["done"], blocking=blocking)(handler)

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    return blueprint


@pytest.mark.parametrize(
    "wish",
    [
        {"priority": "high"},
        {"priority": float("nan")},
        {"tracing_context": {"sampled": True}},
        {"client": 7},
        {"client": "\udcff"},
        {"dispatch_timeout_s": "60"},
        {"dispatch_timeout_s": -1},
        {"result_timeout_s": float("inf")},
        {"webhook_url": object()},
        {"search_attributes": {1: "x"}},
        {"idempotency_key": ""},
        {"input": {1: "x"}},
        {"input": ["no dict"]},
        {"input": {"much": "x" * (MAX_BYTES + 1)}},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_a_wish_that_no_store_could_keep_is_refused_and_hurts_nobody(wish: dict[str, Any]) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)

        async def crowd() -> list[Any]:
            wishes = [{}, wish, {}]
            submissions = [Submission(blueprint="script", **one) for one in wishes]
            return list(await kit.director.engine.submit(submissions))

        before, refused, after = kit.call(crowd)
        assert isinstance(refused, NotSerializable)
        assert isinstance(before, Job)
        assert isinstance(after, Job)
        assert [kit.wait(job).status for job in (before, after)] == [JobStatus.FINISHED] * 2
        assert len(kit.jobs()) == 2


def test_a_batch_with_a_wish_that_cannot_be_kept_writes_nothing() -> None:
    with TestOrchestrator(one_task()) as kit:
        wishes = [Submission(blueprint="script"), Submission(blueprint="script", input={"odd": object()})]
        with pytest.raises(NotSerializable):
            kit.call(lambda: kit.director.submit_many(wishes))
        assert kit.jobs() == []


@pytest.mark.parametrize("value", [{200: "OK"}, {"a": {2**70}}, {"x": "\udcff"}], ids=str)
def test_a_result_that_no_store_could_keep_is_the_workers_mistake(value: Any) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: value)
        job = kit.run("script")
        assert job.status is JobStatus.QUARANTINED
        assert job.error is not None
        assert job.error.code == "PERMANENT_ERROR"
        kit.crash()  # and everything can be read again
        assert kit.get(job).status is JobStatus.QUARANTINED


@pytest.mark.parametrize("error", [ValueError("\udcff"), Unprintable()], ids=["surrogate", "unprintable"])
@pytest.mark.parametrize("where", ["handler", "task"])
def test_an_error_that_cannot_be_written_down_is_told_as_well_as_it_can_be(
    error: Exception, where: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    blueprint = script(fail) if where == "handler" else one_task()
    with TestOrchestrator(blueprint) as kit:
        kit.task("work")(fail)
        job = kit.run("script")
        assert job.status is JobStatus.QUARANTINED
        assert job.error is not None
        assert type(error).__name__ in job.error.message


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, GeneratorExit, StopIteration, Panic])
@pytest.mark.parametrize("blocking", [False, True])
def test_whatever_a_plain_handler_raises_is_a_failure_of_the_handler(
    odd: type[BaseException], blocking: bool
) -> None:
    def handler(context: JobContext, actions: ActionFactory) -> None:
        raise odd

    with TestOrchestrator(script(handler, blocking=blocking)) as kit:
        job = kit.run("script")
        assert job.status is JobStatus.QUARANTINED
        assert job.error is not None
        assert odd.__name__ in job.error.message


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, Panic])
@pytest.mark.parametrize("waits", [False, True])
def test_whatever_an_async_handler_raises_is_a_failure_of_the_handler(
    odd: type[BaseException], waits: bool
) -> None:
    async def at_once(context: JobContext, actions: ActionFactory) -> None:
        raise odd

    async def later(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(1)
        raise odd

    with TestOrchestrator(script(later if waits else at_once)) as kit:
        assert kit.run("script").status is JobStatus.QUARANTINED


@pytest.mark.parametrize("odd", [asyncio.CancelledError, SystemExit, StopIteration, Panic])
@pytest.mark.parametrize("kind", ["plain", "async", "waiting"])
def test_whatever_a_task_raises_is_its_failure_and_frees_its_slot(
    odd: type[BaseException], kind: str
) -> None:
    def plain(params: dict[str, Any]) -> None:
        raise odd

    async def at_once(params: dict[str, Any]) -> None:
        raise odd

    async def waiting(params: dict[str, Any]) -> None:
        await asyncio.sleep(1)
        raise odd

    with TestOrchestrator(one_task()) as kit:
        kit.task("work")({"plain": plain, "async": at_once, "waiting": waiting}[kind])
        job = kit.run("script")
        assert job.status is JobStatus.QUARANTINED  # nobody cancelled it, so it is not cancelled
        assert sum(event.type is EventType.TASK_FAILED for event in kit.events(job)) == 4
        assert all(not connected.attempts for connected in kit.director.dispatcher.connected_workers())


def test_progress_that_is_no_number_is_refused_where_it_is_said() -> None:
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any], context: TaskContext) -> None:
            context.progress("50%")  # type: ignore[arg-type]

        job = kit.run("script")
        assert job.error is not None
        assert "a number from 0 to 1" in job.error.message


class BreakableStorage(MemoryStorage):
    """Says that a flush has failed when a test wants it to."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = asyncio.Event()

    async def failed(self) -> StorageFailed:
        await self.broken.wait()
        return StorageFailed("the disk is gone")


@pytest.mark.parametrize("how", ["stop", "fail"])
async def test_who_waits_for_a_job_is_told_when_nothing_will_come_any_more(how: str) -> None:
    storage = BreakableStorage()
    director = OrchestratorEngine(storage, Config())
    director.register_blueprint(one_task())
    await director.start()
    job = await director.submit("script")
    waiting = asyncio.create_task(director.wait(job.id))
    await asyncio.sleep(0.01)
    if how == "stop":
        await director.stop()
    else:
        storage.broken.set()
    with pytest.raises((OrchestratorStopped, StorageFailed)):
        await asyncio.wait_for(waiting, 5)
    with contextlib.suppress(StorageFailed):
        await director.wait_stopped()


async def test_the_same_orchestrator_can_be_started_again(tmp_path: Path) -> None:
    director = OrchestratorEngine(f"sqlite:{tmp_path}/jobs.db", Config())
    director.register_blueprint(one_task())
    worker = Worker()
    worker.task("work")(lambda params: None)
    director.add_worker(worker)
    with pytest.raises(OrchestratorStopped, match="start it first"):
        await director.submit("script")
    for _ in range(3):
        async with director:
            job = await director.run_job("script", timeout_s=5)
            assert job.status is JobStatus.FINISHED
        with pytest.raises(OrchestratorStopped):
            await director.submit("script")


async def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    history = tmp_path / "jobs.history.db"
    history.write_bytes(b"this is no database, whatever it says" * 100)
    director = OrchestratorEngine(f"sqlite:{tmp_path}/jobs.db", Config())
    with pytest.raises(Exception, match="history"):
        await director.start()
    history.unlink()
    await director.start()
    await director.stop()


def test_a_new_store_beside_an_old_history_loses_no_event(tmp_path: Path) -> None:
    async def run_once() -> list[int]:
        director = OrchestratorEngine(f"sqlite:{tmp_path}/jobs.db", Config())
        director.register_blueprint(one_task())
        worker = Worker()
        worker.task("work")(lambda params: None)
        director.add_worker(worker)
        async with director:
            job = await director.run_job("script", timeout_s=5)
            await director.recorder.drain()
            return [event.seq for event in await director.events(job.id)]

    first = asyncio.run(run_once())
    for path in tmp_path.glob("jobs.db*"):
        path.unlink()
    assert asyncio.run(run_once()) == first == list(range(1, len(first) + 1))


def test_a_replay_costs_nothing_and_may_travel_differently() -> None:
    runs: list[str] = []

    def handler(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    with TestOrchestrator(script(handler)) as kit:
        jobs = [
            kit.submit("script", {"n": 1}, idempotency_key="k", tracing_context={"traceparent": str(n)})
            for n in range(4)
        ]
        assert len({job.id for job in jobs}) == 1
        assert runs == [jobs[0].id]


def test_no_more_handlers_are_suspended_than_allowed() -> None:
    most = current = 0

    async def handler(context: JobContext, actions: ActionFactory) -> None:
        nonlocal most, current
        current += 1
        most = max(most, current)
        await asyncio.sleep(5)
        current -= 1
        actions.transition_to("done")

    with TestOrchestrator(script(handler), config=Config(executor_max_concurrent_jobs=10)) as kit:
        jobs = [kit.submit("script") for _ in range(60)]
        assert {kit.wait(job).status for job in jobs} == {JobStatus.FINISHED}
        # A turn that has begun takes its own along; nothing like all of them.
        assert most <= 20


def test_signs_of_life_of_many_branches_do_not_hold_the_loop() -> None:
    blueprint = StateMachineBlueprint("wide")

    @blueprint.handler_for("split", is_start=True)
    def split(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_parallel([{"type": "work"} for _ in range(3000)], "join")

    @blueprint.aggregator_for("join", is_end=True)
    def join(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(len(context.aggregation_results))

    async def body() -> float:
        director = OrchestratorEngine("memory", Config())
        director.register_blueprint(blueprint)
        worker = Worker(concurrency=1500)
        worker.task("work")(_nap)
        director.add_worker(worker)
        worst = 0.0
        async with director:
            job = await director.submit("wide")
            while not (await director.get(job.id)).status.settled:
                watch = Stopwatch()
                await asyncio.sleep(0.05)
                worst = max(worst, watch.elapsed_s() - 0.05)
            assert (await director.get(job.id)).result == 3000
        return worst

    assert asyncio.run(body()) < 1.5


async def _nap(params: dict[str, Any]) -> None:
    await asyncio.sleep(1.2)


def test_a_hundred_messages_that_cannot_be_acted_on_hold_up_no_later_one() -> None:
    def end(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("over")

    def run_child(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint(context.initial_data["child"], transitions={"over": "done"})

    def ask(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("end?", transitions={"yes": "over"})

    make = support.script
    blueprints = make(end, "over", name="child"), make(ask, "over", name="asks"), make(run_child, "done")
    with TestOrchestrator(*blueprints) as kit:
        waiting = kit.submit("script", {"child": "asks"})
        wait = kit.get(waiting).wait
        assert isinstance(wait, AwaitChild)
        unreadable = tuple(
            JobMessage(f"a{number:03}", JobMessageKind.CHILD_ENDED, waiting.id, wait.child_id, {})
            for number in range(150)
        )
        sender = kit.get(kit.submit("asks"))
        after = replace(sender, revision=sender.revision + 1)
        change = Change(job_id=sender.id, token="t", job=after, expected=sender.revision, messages=unreadable)
        kit.call(lambda: kit.director.storage.commit([change], "test"))
        assert kit.run("script", {"child": "child"}).status is JobStatus.FINISHED


def test_a_job_that_cannot_be_played_costs_no_other_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with one record, those who happen to be in the same turn go on."""

    async def main() -> None:
        director = OrchestratorEngine(MemoryStorage(), Config())
        director.register_blueprint(script(lambda context, actions: actions.transition_to("done")))
        await director.start()
        run = HandlerRunner.run

        def spoilt(runner: HandlerRunner, blueprint: Any, graph: Any, job: Any, tasks: Any) -> Any:
            if job.input.get("poison"):
                raise TypeError("a fault of ours")
            return run(runner, blueprint, graph, job, tasks)

        monkeypatch.setattr(HandlerRunner, "run", spoilt)
        wishes = [director.submit("script", {"poison": n == 2}) for n in range(5)]
        answers = await asyncio.gather(*wishes, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Job, Job, TypeError, Job, Job]
        for answer in answers:
            if isinstance(answer, Job):
                assert (await director.wait(answer.id, 5)).status is JobStatus.FINISHED
        await director.stop()

    asyncio.run(main())
    assert "play_failed" in [getattr(record, "action", "") for record in caplog.records]


async def test_what_is_nested_too_deeply_to_be_read_anywhere_is_refused_at_the_door() -> None:
    def nested(levels: int) -> dict[str, Any]:
        value: Any = "]"
        for _ in range(levels):
            value = ["]", value]
        return {"x": value}

    async with OrchestratorEngine(MemoryStorage(), Config()) as director:
        director.register_blueprint(script(lambda context, actions: actions.transition_to("done")))
        job = await director.submit("script", nested(90))
        assert (await director.wait(job.id, 5)).status is JobStatus.FINISHED
        for levels in (900, 960, 968, 973, 5000):
            with pytest.raises(NotSerializable):
                await director.submit("script", nested(levels))
