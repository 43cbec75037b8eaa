"""The reference performer: tasks done in the orchestrator's own process."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from regista import (
    EventType,
    Job,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    PermanentError,
    RetryPolicy,
    StateMachineBlueprint,
    Worker,
)
from regista.testing.clock import LoopClock
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop
from regista.testing.orchestrator import TestOrchestrator
from regista.worker import TaskContext
from tests.support import fan_out, fault, one_task, only, types

T = TypeVar("T")


# -- calling functions -------------------------------------------------------------------------------


def test_a_task_function_may_be_sync_async_or_a_method_and_take_one_or_two_arguments() -> None:
    class Tools:
        def method(self, params: dict[str, Any]) -> str:
            return "method"

    async def quick(params: dict[str, Any]) -> str:
        return "quick"

    async def slow(params: dict[str, Any], context: TaskContext) -> str:
        await asyncio.sleep(60)
        return f"slow {context.attempt}"

    def plain(params: dict[str, Any], context: TaskContext) -> str:
        return f"plain {context.job_id == context.task_id.split('_')[0]}"

    def prefixed(prefix: str, params: dict[str, Any]) -> str:
        return prefix

    functions: dict[str, Any] = {
        "quick": quick,
        "slow": slow,
        "plain": plain,
        "method": Tools().method,
        "partial": functools.partial(prefixed, "partial"),
        "lambda": lambda params: "lambda",
    }
    for name, func in functions.items():
        with TestOrchestrator(fan_out(1)) as kit:
            kit.task("work")(func)
            job = kit.run("script")
            said = job.data["results"][0]["data"]
            assert said.split()[0] == name
            assert "False" not in said


def test_a_function_with_too_many_parameters_is_refused_at_registration() -> None:
    def greedy(params: Any, context: Any, more: Any) -> None: ...

    with pytest.raises(ValueError, match="greedy"):
        Worker().task("work")(greedy)


def test_a_second_function_for_one_task_is_refused() -> None:
    worker = Worker("twin")
    worker.task("work")(lambda params: None)
    with pytest.raises(ValueError, match="already has a task 'work'"):
        worker.task("work")(lambda params: None)


def test_a_worker_needs_at_least_one_slot() -> None:
    with pytest.raises(ValueError, match="concurrency"):
        Worker(concurrency=0)


# -- what it returns ---------------------------------------------------------------------------------


def echo(said: Any, params: dict[str, Any]) -> Any:
    return said


def test_a_dict_of_status_data_and_error_says_more_than_data_alone() -> None:
    answers: list[Any] = [
        {"status": "success", "data": {"n": 1}},
        {"data": {"n": 1}},
        {"n": 1},
        {"status": "success", "n": 1},  # not only known keys: it is data
        {},
    ]
    seen = []
    for said in answers:
        with TestOrchestrator(one_task()) as kit:
            kit.task("work")(functools.partial(echo, said))
            seen.append(kit.run("script").data)
    assert seen == [{"n": 1}, {"n": 1}, {"n": 1}, {"status": "success", "n": 1}, {}]


def test_the_details_of_an_error_reach_the_aggregator() -> None:
    def broken(params: dict[str, Any]) -> None:
        raise PermanentError("no such codec", codec="av2")

    with TestOrchestrator(fan_out(1)) as kit:
        kit.task("work")(broken)
        (result,) = kit.run("script").data["results"]
        assert result["error"] == {
            "code": "PERMANENT_ERROR",
            "message": "no such codec",
            "details": {"codec": "av2"},
        }


@pytest.mark.parametrize(
    "odd", [object(), {"f": lambda: 1}, {"big": 2**70}, {"error": 5}, {"error": {"code": 1}}]
)
def test_a_result_that_is_no_plain_data_is_a_permanent_failure_that_says_so(odd: Any) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: odd)
        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "PERMANENT_ERROR")


def test_what_a_function_does_to_its_params_does_not_reach_the_store() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=0))) as kit:
        seen: list[dict[str, Any]] = []

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            seen.append(dict(params))
            params["spoiled"] = True
            if len(seen) == 1:
                raise RuntimeError("again")

        kit.run("script", {"n": 1})
        assert seen == [{"n": 1}, {"n": 1}]


# -- attempts ----------------------------------------------------------------------------------------


def test_the_task_id_is_stable_over_attempts_and_the_attempt_id_is_not() -> None:
    seen: list[tuple[str, str, int]] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any], context: TaskContext) -> None:
            seen.append((context.task_id, context.attempt_id, context.attempt))
            if context.attempt < 3:
                raise RuntimeError("again")

        kit.run("script")
    assert len({task for task, _, _ in seen}) == 1
    assert len({attempt for _, attempt, _ in seen}) == 3
    assert [number for _, _, number in seen] == [1, 2, 3]


def test_a_checkpoint_is_handed_to_the_next_attempt() -> None:
    found: list[Any] = []
    with TestOrchestrator(one_task(attempt_timeout=50)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any], context: TaskContext) -> None:
            found.append(context.checkpoint)
            context.progress(0.5, "half", checkpoint={"frame": len(found)})
            await asyncio.sleep(1000 if context.attempt < 3 else 1)

        assert kit.run("script").status is JobStatus.FINISHED
    assert found == [None, {"frame": 1}, {"frame": 2}]


def test_a_checkpoint_left_just_before_an_error_is_handed_on_too() -> None:
    found: list[Any] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any], context: TaskContext) -> None:
            found.append(context.checkpoint)
            context.progress(checkpoint=len(found))
            await asyncio.sleep(0.01)
            if context.attempt < 3:
                raise RuntimeError("again")

        kit.run("script")
    assert found == [None, 1, 2]


def test_a_long_task_is_recorded_as_started_while_it_runs() -> None:
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(60)

        job = kit.submit("script")
        kit.skip(5)
        (started,) = only(kit.events(job), EventType.TASK_STARTED)
        kit.wait(job)
        (finished,) = only(kit.events(job), EventType.TASK_FINISHED)
        assert (finished.at - started.at).total_seconds() == pytest.approx(60)
        assert finished.duration_ms == pytest.approx(60_000)
        assert len(only(kit.events(job), EventType.TASK_STARTED)) == 1


def test_a_thread_that_cannot_be_stopped_is_asked_and_its_word_is_waited_for() -> None:
    seen: list[bool] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any], context: TaskContext) -> None:
            seen.append(context.cancelled)

        job = kit.run("script")
        assert (job.status, seen) == (JobStatus.FINISHED, [False])


# -- life --------------------------------------------------------------------------------------------


class Stage:
    """Two lives of an orchestrator with a real upkeep, over one disk."""

    def __init__(self, *blueprints: StateMachineBlueprint) -> None:
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.disk = SimulatedDisk()
        self._blueprints = blueprints

    def director(self, *workers: Worker) -> OrchestratorEngine:
        director = OrchestratorEngine(MemoryStorage(self.clock, self.disk), clock=self.clock)
        for blueprint in self._blueprints:
            director.register_blueprint(blueprint)
        for worker in workers:
            director.add_worker(worker)
        return director

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(main)


def test_heartbeats_keep_a_worker_alive_for_half_an_hour() -> None:
    stage = Stage(one_task(attempt_timeout=20_000))
    worker = Worker()

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        await asyncio.sleep(1800)

    async def main() -> list[str]:
        async with stage.director(worker) as director:
            job = await director.run_job("script")
            assert job.status is JobStatus.FINISHED
            return types(await director.events(job.id))

    assert "task_lost" not in stage.run(main())
    stage.loop.close()


def test_stop_lets_running_tasks_finish_within_the_grace() -> None:
    stage = Stage(one_task())
    worker = Worker()

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(3)
        return {"n": 1}

    async def main() -> Job:
        director = stage.director(worker)
        await director.start()
        job = await director.submit("script")
        await asyncio.sleep(1)
        await director.stop(grace_s=5)
        later = stage.director()
        async with later:
            return await later.wait(job.id, 10)

    assert stage.run(main()).data == {"n": 1}
    stage.loop.close()


def test_stop_hands_back_what_does_not_finish_within_the_grace_and_the_job_goes_on_later() -> None:
    stage = Stage(one_task())
    worker = Worker()
    runs: list[int] = []

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        runs.append(1)
        await asyncio.sleep(100 if len(runs) == 1 else 1)
        return {"n": len(runs)}

    async def main() -> Job:
        director = stage.director(worker)
        await director.start()
        job = await director.submit("script")
        await asyncio.sleep(1)
        await director.stop(grace_s=5)
        async with stage.director(worker) as later:
            return await later.wait(job.id, 200)

    job = stage.run(main())
    assert (job.status, job.data) == (JobStatus.FINISHED, {"n": 2})
    stage.loop.close()


def test_stop_twice_and_before_start_are_fine() -> None:
    stage = Stage(one_task())

    async def main() -> None:
        director = stage.director()
        local = director.add_worker(Worker())
        await local.stop()
        await director.start()
        await local.start()
        await local.stop()
        await local.stop()
        await director.stop()

    stage.run(main())
    stage.loop.close()


def test_two_stops_at_once_both_return_when_it_has_truly_stopped() -> None:
    stage = Stage(one_task())
    worker = Worker()
    notes: list[str] = []

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        await asyncio.sleep(3)
        notes.append("done")

    async def main() -> None:
        director = stage.director()
        local = director.add_worker(worker)
        await director.start()
        await director.submit("script")
        await asyncio.sleep(1)
        first = asyncio.create_task(local.stop(5))
        await asyncio.sleep(0.1)
        await local.stop()
        assert notes == ["done"]
        await first
        await director.stop()

    stage.run(main())
    stage.loop.close()


def test_a_worker_that_was_forgotten_registers_again_with_its_next_beat() -> None:
    stage = Stage(one_task(attempt_timeout=1000))
    worker = Worker()

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    async def main() -> Job:
        async with stage.director(worker) as director:
            await asyncio.sleep(61)  # the grace is over; a beat has just been
            job = await director.submit("script")
            await asyncio.sleep(1)
            (known,) = await director.storage.workers()
            await director.storage.forget_worker(known.id, known.session)
            job = await director.wait(job.id, 200)
            # Lost once; until it is back nothing more is offered to it, to be lost again.
            assert types(await director.events(job.id)).count("task_lost") == 1
            return job

    assert stage.run(main()).status is JobStatus.FINISHED
    stage.loop.close()


@pytest.mark.parametrize("said", ["the lens is dirty", {"message": "the lens is dirty"}])
def test_an_error_may_be_just_a_message(said: Any) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: {"error": said})
        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "TRANSIENT_ERROR")
        assert job.error is not None
        assert job.error.message == "the lens is dirty"
