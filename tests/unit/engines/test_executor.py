"""The executor: patience, handlers that fail, and crashes at every boundary. FENCES 5, 7; DESIGN 5."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import pytest

from regista import (
    EventType,
    Job,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    StateMachineBlueprint,
    Submission,
)
from regista.blueprint import ActionFactory, JobContext
from regista.config import Config
from regista.dispatch.connected import CallbackConnection
from regista.errors import OrchestratorStopped, StorageError, StorageFailed
from regista.model import Change, CommitOutcome, Task, Worker
from regista.storage.base import Hint, HintKind
from regista.testing.clock import LoopClock
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fault, one_task, only, script, types


def slow_second(seconds: float, runs: list[float], name: str = "script") -> StateMachineBlueprint:
    """One task; then a handler that takes its time."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "think"})

    async def think(context: JobContext, actions: ActionFactory) -> None:
        runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)
        context.state_history["thought"] = seconds
        actions.transition_to("done")

    return script(start, "done", name=name, think=think)


# -- patience (FENCES 5) -------------------------------------------------------------------------


def test_a_result_and_the_next_decision_are_one_write_when_the_handler_is_fast() -> None:
    with TestOrchestrator(slow_second(0.01, [])) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        before = kit.writes
        # when
        puppet.finish(puppet.tasks[0], {"n": 1})
        # then
        assert kit.get(job).status is JobStatus.FINISHED
        assert kit.writes == before + 1


def test_a_result_is_committed_alone_after_20_ms_of_a_slow_handler() -> None:
    with TestOrchestrator(slow_second(60.0, [])) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        began = kit.now
        # when: the worker is answered as soon as its result is safe, not when the handler is through
        puppet.finish(puppet.tasks[0], {"n": 1})
        # then
        assert (kit.now - began).total_seconds() == pytest.approx(0.02)
        kept = kit.get(job)
        assert (kept.status, kept.state, kept.data) == (JobStatus.RUNNING, "think", {"n": 1})
        assert kit.wait(job).data == {"n": 1, "thought": 60.0}


def test_the_handler_behind_a_committed_result_keeps_its_lease_and_runs_once_for_five_minutes() -> None:
    runs: list[float] = []
    with TestOrchestrator(slow_second(300.0, runs)) as kit:
        kit.task("work")(lambda params: None)
        job = kit.run("script")
        assert (job.status, len(runs)) == (JobStatus.FINISHED, 1)
        assert len(only(kit.events(job), EventType.STATE_FAILED)) == 0


def test_a_result_that_came_in_time_is_never_thrown_away_by_its_deadline() -> None:
    runs: list[float] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "think"}, result_timeout=5)

    async def think(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(60)
        runs.append(1)
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done", think=think)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(4.9)

        job = kit.run("script")
        assert (job.status, len(runs)) == (JobStatus.FINISHED, 1)


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_a_result_whose_write_is_refused_is_refused_with_the_reason_however_its_handler_runs(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Told that the orchestrator stops, a worker would keep its result until it comes back.
    async def refuse(changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        raise StorageError("not now")

    with TestOrchestrator(slow_second(seconds, [])) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        with monkeypatch.context() as patch:
            patch.setattr(kit.director.storage, "commit", refuse)
            with pytest.raises(StorageError, match="not now"):
                puppet.finish(puppet.tasks[0], {"n": 1})
        puppet.finish(puppet.tasks[0], {"n": 1})
        assert kit.get(job).status is JobStatus.FINISHED


def test_after_a_crash_behind_the_patience_the_handler_runs_again_and_the_task_does_not() -> None:
    runs: list[float] = []
    done: list[int] = []
    with TestOrchestrator(slow_second(60.0, runs)) as kit:
        kit.task("work")(lambda params: done.append(1))
        job = kit.submit("script")
        kit.skip(10)
        kit.crash()
        assert kit.wait(job).status is JobStatus.FINISHED
        assert (len(runs), len(done)) == (2, 1)


def test_a_slow_first_handler_does_not_keep_the_submitter_waiting() -> None:
    async def start(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(60)
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done")) as kit:
        began = kit.now
        job = kit.submit("script")
        assert (kit.now - began).total_seconds() == pytest.approx(0.02)
        assert kit.wait(job).status is JobStatus.FINISHED


def test_many_slow_handlers_wait_their_turn_and_all_finish() -> None:
    together: list[int] = [0, 0]

    async def start(context: JobContext, actions: ActionFactory) -> None:
        together[0] += 1
        together[1] = max(together)
        await asyncio.sleep(1)
        together[0] -= 1
        actions.transition_to("done")

    config = Config(instance_id="test", executor_max_concurrent_jobs=5)
    with TestOrchestrator(script(start, "done"), config=config) as kit:
        jobs = [kit.submit("script") for _ in range(20)]
        assert all(kit.wait(job).status is JobStatus.FINISHED for job in jobs)


def test_a_handler_of_a_job_that_was_cancelled_meanwhile_changes_nothing() -> None:
    with TestOrchestrator(slow_second(60.0, [])) as kit:
        kit.task("work")(lambda params: None)
        job = kit.submit("script")
        kit.skip(1)
        assert kit.cancel(job).status is JobStatus.CANCELLED
        kit.skip(120)
        after = kit.get(job)
        assert (after.status, after.state, after.data) == (JobStatus.CANCELLED, "think", {})


# -- one write ---------------------------------------------------------------------------------------


def test_a_submission_its_first_handler_and_the_offer_are_one_write() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        before = kit.writes
        kit.submit("script")
        puppet.settle()
        assert (kit.writes - before, len(puppet.tasks)) == (1, 1)


def test_several_transitions_in_a_row_are_one_write_and_all_of_them_are_recorded() -> None:
    def onwards(target: str) -> Any:
        return lambda context, actions: actions.transition_to(target)

    blueprint = script(onwards("a"), "done", a=onwards("b"), b=onwards("c"), c=onwards("done"))
    with TestOrchestrator(blueprint) as kit:
        kit.skip(0)
        before = kit.writes
        job = kit.submit("script")
        assert (job.status, kit.writes - before) == (JobStatus.FINISHED, 1)
        assert kit.states(job) == ["start", "a", "b", "c", "done"]


def test_a_blueprint_that_never_waits_still_commits_and_can_be_cancelled() -> None:
    blueprint = script(
        lambda context, actions: actions.transition_to("ping"),
        "done",
        ping=lambda context, actions: actions.transition_to("pong"),
        pong=lambda context, actions: actions.transition_to("ping"),
    )
    with TestOrchestrator(blueprint) as kit:
        job = kit.submit("script")
        assert job.status is JobStatus.RUNNING
        assert kit.cancel(job).status is JobStatus.CANCELLED


# -- handlers that fail (DESIGN 5) -----------------------------------------------------------------


def test_a_handler_that_raises_is_run_again_with_backoff_and_then_quarantines_the_job() -> None:
    runs: list[float] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(kit.now.timestamp())
        raise RuntimeError("the printer is on fire")

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.run("script")
        # then: JOB_MAX_RETRIES=3 means three retries, one second first, each pause twice as long
        assert job.status is JobStatus.QUARANTINED
        assert fault(job) == "handler_error"
        assert "'start'" in str(job.error)
        assert "the printer is on fire" in str(job.error)
        pauses = [after - before for before, after in pairwise(runs)]
        assert pauses == [pytest.approx(1, rel=0.11), pytest.approx(2, rel=0.11), pytest.approx(4, rel=0.11)]
        assert [event.attempt for event in only(kit.events(job), EventType.STATE_FAILED)] == [1, 2, 3, 4]


def test_a_handler_that_recovers_goes_on_and_its_failures_are_forgotten() -> None:
    attempts: list[int] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        attempts.append(context.attempt)
        if context.attempt < 4:
            raise RuntimeError("not yet")
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.run("script")
        assert (job.status, job.handler_failures, attempts) == (JobStatus.FINISHED, 0, [1, 2, 3, 4])


def test_what_a_handler_wrote_before_raising_is_dropped() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        seen = dict(context.state_history)
        context.state_history["half"] = "done"
        context.initial_data["spoiled"] = True
        actions.set_result("never")
        actions.set_search_attributes({"Half": True})
        if context.attempt == 1:
            raise RuntimeError("too early")
        context.state_history["seen"] = seen
        context.state_history["input"] = "spoiled" in dict(context.initial_data) and context.attempt
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.submit("script", {"clean": True})
        between = kit.get(job)
        assert (between.data, between.result, between.search_attributes) == ({}, None, {})
        job = kit.wait(job)
        assert job.data["seen"] == {}
        assert job.input == {"clean": True}


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (lambda context, actions: None, "took no action"),
        (lambda context, actions: (actions.transition_to("done"), actions.fail("no")), "after transition_to"),
        (lambda context, actions: actions.transition_to("no" + "where"), "no state 'nowhere'"),
    ],
)
def test_a_handler_that_breaks_the_rules_of_actions_quarantines_and_names_its_state(
    handler: Any, says: str
) -> None:
    with TestOrchestrator(script(handler, "done")) as kit:
        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "action_error")
        assert "'start'" in str(job.error)
        assert says in str(job.error)


def test_no_matching_condition_and_no_default_handler_quarantines_at_once_and_names_the_state() -> None:
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("start", is_start=True).when("context.initial_data.kind == 'video'")
    def video(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done")

    blueprint.handler_for("done", is_end=True)(lambda context, actions: None)
    with TestOrchestrator(blueprint) as kit:
        job = kit.submit("script", {"kind": "audio"})
        assert (job.status, fault(job), job.handler_failures) == (JobStatus.QUARANTINED, "no_handler", 1)
        assert "'start'" in str(job.error)
        # a missing field makes the condition false, no more
        assert fault(kit.submit("script", {})) == "no_handler"
        assert kit.submit("script", {"kind": "video"}).status is JobStatus.FINISHED


def test_fail_leads_through_the_state_failed_where_there_is_one() -> None:
    plain = script(lambda context, actions: actions.fail("no way", code="nope"), "done")
    mended = script(
        lambda context, actions: actions.fail("no way", code="nope"), "done", "failed", name="mended"
    )
    with TestOrchestrator(plain, mended) as kit:
        straight, through = kit.submit("script"), kit.submit("mended")
        assert (straight.status, straight.state, fault(straight)) == (JobStatus.FAILED, "start", "nope")
        assert (through.status, through.state, fault(through)) == (JobStatus.FAILED, "failed", "nope")
        assert kit.states(through) == ["start", "failed"]


def test_a_computed_target_may_be_any_state_and_a_declared_one_only_what_it_names() -> None:
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to(context.initial_data["to"])

    @blueprint.handler_for("strict", targets=["done"])
    def strict(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to(context.initial_data["then"])

    for state in ("done", "other", "failed"):
        blueprint.handler_for(state, is_end=True)(lambda context, actions: None)
    with TestOrchestrator(blueprint) as kit:
        assert kit.submit("script", {"to": "other"}).state == "other"
        assert kit.submit("script", {"to": "strict", "then": "done"}).state == "done"
        assert kit.submit("script", {"to": "strict", "then": "failed"}).state == "failed"
        refused = kit.run("script", {"to": "strict", "then": "other"})
        assert (refused.status, refused.state) == (JobStatus.QUARANTINED, "strict")


def test_search_attributes_and_the_result_combine_with_any_action() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.set_search_attributes({"Kind": "video"})
        actions.set_result("early")
        actions.sleep(1, then="more")

    def more(context: JobContext, actions: ActionFactory) -> None:
        actions.set_search_attributes({"Size": 3})
        actions.fail("enough")

    with TestOrchestrator(script(start, "done", more=more)) as kit:
        job = kit.run("script", search_attributes={"Asset": "a"})
        assert job.search_attributes == {"Asset": "a", "Kind": "video", "Size": 3}
        assert (job.status, job.result) == (JobStatus.FAILED, "early")


# -- crashes -------------------------------------------------------------------------------------------


def mixed() -> list[StateMachineBlueprint]:
    """A task with a retry, a fan-out, a slow handler, a person, a timer and a child."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("once", transitions={"success": "spread"}, result_timeout=500)

    async def spread(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.5)
        for n in range(3):
            actions.dispatch_task("square", {"n": n}, transitions={"success": "gather"})

    def gather(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["sum"] = sum(r["data"] for r in context.aggregation_results.values())
        actions.await_human_approval("go on?", transitions={"yes": "nap", "no": "done"})

    child = script(lambda context, actions: actions.transition_to("over"), "over", name="child")
    parent = script(
        start,
        "done",
        aggregators=["gather"],
        spread=spread,
        gather=gather,
        nap=lambda context, actions: actions.sleep(86_400, then="delegate"),
        delegate=lambda context, actions: actions.run_blueprint("child", transitions={"over": "done"}),
    )
    return [parent, child]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_commit_boundary_of_a_mixed_job_leads_to_the_same_end(
    when: Literal["before", "after"],
) -> None:
    for boundary in range(1, 100):
        with TestOrchestrator(*mixed(), seed=boundary) as kit:

            @kit.task("once")
            async def once(params: dict[str, Any], context: Any) -> dict[str, Any]:
                if context.attempt == 1:
                    raise RuntimeError("the first try never works")
                await asyncio.sleep(5)
                return {"once": True}

            kit.task("square")(lambda params: params["n"] ** 2)
            kit.crash_at(boundary, when)
            job = kit.run("script")
            assert job.status is JobStatus.WAITING_FOR_HUMAN
            kit.approve(job, "yes")
            job = kit.wait(job)
            assert (job.status, job.state) == (JobStatus.FINISHED, "done")
            assert {key: job.data[key] for key in ("once", "sum")} == {"once": True, "sum": 5}
            assert kit.states(job) == ["start", "spread", "gather", "nap", "delegate", "done"]
            if not kit.crashes:
                break
    assert 10 < boundary < 99  # so many commits it has, and all of them were tried


def test_a_result_that_the_crash_swallowed_is_worked_out_again_and_counts_once() -> None:
    runs: list[int] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> dict[str, Any]:
            runs.append(1)
            return {"n": len(runs)}

        kit.crash_at(lambda event: event.type is EventType.TASK_FINISHED)
        job = kit.run("script")
        assert (kit.crashes, job.data, len(runs)) == (1, {"n": 2}, 2)
        assert types(kit.events(job)).count("task_finished") == 1


class UnwatchedStorage(MemoryStorage):
    async def failed(self) -> StorageFailed:
        await asyncio.Event().wait()
        raise AssertionError


def test_after_a_failed_flush_the_executor_does_not_spin_and_everybody_is_told() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    disk = SimulatedDisk()
    storage = UnwatchedStorage(clock, disk)  # nobody stops us: the executor has to keep quiet by itself

    async def main() -> None:
        director = OrchestratorEngine(storage, clock=clock)
        director.register_blueprint(one_task())
        await director.start()
        asking = asyncio.ensure_future(director.submit("script"))
        await asyncio.sleep(0.0001)  # its write takes 0.0005
        disk.pull_the_plug()
        with pytest.raises(StorageFailed):
            await asking
        director.hints.dispatch(Hint(HintKind.READY))
        await asyncio.sleep(1)  # would never return if one turn chased the other
        with pytest.raises(StorageFailed):
            await director.submit("script")
        await director.stop()

    loop.run_until_complete(main())
    loop.close()


async def test_jobs_in_the_ready_queue_go_on_while_newcomers_keep_every_turn_full() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done")

    async def flood(director: OrchestratorEngine) -> None:
        while True:
            await director.submit("script", client="newcomer")

    director = OrchestratorEngine("memory")
    director.register_blueprint(script(start, "done"))
    await director.start()
    newcomers = [asyncio.create_task(flood(director)) for _ in range(2000)]
    await asyncio.sleep(0.05)
    # given: more than are taken on at once, so that they wait in the ready queue
    jobs = await director.submit_many([Submission(blueprint="script") for _ in range(200)])
    # then
    async with asyncio.timeout(5):
        ended = [await director.wait(job.id) for job in jobs if isinstance(job, Job)]
    assert [job.status for job in ended] == [JobStatus.FINISHED] * 200
    for newcomer in newcomers:
        newcomer.cancel()
    await asyncio.gather(*newcomers, return_exceptions=True)
    await director.stop()


# -- turns ---------------------------------------------------------------------------------------


def test_what_arrives_in_one_turn_of_the_loop_is_run_in_the_next_one_and_written_together() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    disk = SimulatedDisk()
    runs: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    async def main() -> None:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(script(start, "done"))
        await director.start()
        for _ in range(2):  # the second time there is a task that has taken a turn before
            await asyncio.sleep(1)
            before, runs[:] = disk.writes, []
            # when
            asking = [asyncio.ensure_future(director.submit("script")) for _ in range(9)]
            await asyncio.sleep(0)  # they ask
            await asyncio.sleep(0)
            # then
            assert len(runs) == 9
            await asyncio.gather(*asking)
            assert disk.writes == before + 1
        await director.stop()

    loop.run_until_complete(main())
    loop.close()


async def test_a_stop_that_comes_before_the_turn_refuses_what_has_arrived() -> None:
    director = OrchestratorEngine("memory")
    director.register_blueprint(one_task())
    await director.start()
    asking = asyncio.ensure_future(director.submit("script"))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await director.engine.stop()
    with pytest.raises(OrchestratorStopped):
        await asking
    await director.stop()
    # a second life takes turns again
    await director.start()
    async with asyncio.timeout(5):
        await director.submit("script")
    await director.stop()


class ReplacingStorage(MemoryStorage):
    """The worker registers again, at another instance, while an offer to its last session is on its way."""

    moving: Worker | None = None

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        worker, self.moving = self.moving, None
        if worker is not None:
            await self.register(worker, 30)
        return await super().commit(changes, instance)


async def test_an_offer_that_the_store_did_not_take_is_not_sent() -> None:
    storage = ReplacingStorage()
    async with OrchestratorEngine(storage) as director:
        director.register_blueprint(one_task())
        sent: list[str] = []

        def send(tasks: Sequence[Task]) -> None:
            sent.extend(task.attempt_id for task in tasks)

        worker = await storage.register(Worker(id="w1", skills=("work",)), 30)
        director.dispatcher.connect(worker, CallbackConnection(send, lambda attempts: None))
        storage.moving = worker
        job = await director.submit("script")
        assert (await storage.held_by("w1"), sent) == ([], [])
        ((task,), _) = await storage.claim_tasks(
            await storage.register(worker, 30),
            [(await storage.tasks_of(job.id))[0].queue_key],
            1,
            job.created_at,
        )
        assert task.attempt_id == f"{task.id}-1"
