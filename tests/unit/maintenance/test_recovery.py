"""The RecoveryChore: what a lost hint, a crash or a deploy left behind. FENCES 4, 20."""

import asyncio

from regista import JobStatus
from regista.maintenance.chore import ChoreResult
from regista.maintenance.recovery import RecoveryChore
from regista.model import AwaitVersion
from regista.storage.base import HintKind
from regista.testing.orchestrator import TestOrchestrator
from tests.support import fan_out, one_task, script, types


def rescuer(kit: TestOrchestrator) -> RecoveryChore:
    return RecoveryChore(kit.director.engine)


def run_once(kit: TestOrchestrator) -> ChoreResult:
    chore = rescuer(kit)
    return kit.call(lambda: chore.run_once(kit.now))


def stranded(seconds: float = 10) -> tuple[TestOrchestrator, str]:
    """A job whose version nobody has any more, just before it could run."""
    old = script(lambda context, actions: actions.sleep(seconds, then="done"), "done", "old")
    kit = TestOrchestrator(old)
    job = kit.submit("script")
    kit.forget(old)
    kit.crash()
    return kit, job.id


def test_a_stranded_job_moves_to_the_newest_version_once() -> None:
    kit, job_id = stranded()
    with kit:
        kit.register(script(lambda context, actions: actions.sleep(10, then="done"), "done", "new"))
        kit.skip(10)
        assert kit.wait(job_id).status is JobStatus.FINISHED
        assert types(kit.events(job_id)).count("job_migrated") == 1


def test_two_rescuers_at_once_migrate_a_job_once() -> None:
    kit, job_id = stranded()
    with kit:
        kit.skip(20)
        assert isinstance(kit.get(job_id).wait, AwaitVersion)
        newest = script(lambda context, actions: actions.sleep(10, then="done"), "done", "new")
        kit.director.register_blueprint(newest)
        first, second = rescuer(kit), rescuer(kit)

        async def race() -> tuple[ChoreResult, ChoreResult]:
            return await asyncio.gather(first.run_once(kit.clock.now()), second.run_once(kit.clock.now()))

        reports = kit.call(race)
        kit.register(newest)
        assert sum(report.done for report in reports) >= 1
        assert kit.wait(job_id).status is JobStatus.FINISHED
        assert types(kit.events(job_id)).count("job_migrated") == 1


def test_naming_a_missing_version_happens_once_and_does_not_go_on_writing() -> None:
    kit, job_id = stranded()
    with kit:
        kit.skip(20)
        named = kit.get(job_id)
        writes = kit.writes
        for _ in range(5):
            assert run_once(kit).done == 0
        kit.skip(days=2)
        assert (kit.get(job_id), kit.writes) == (named, writes)


def test_a_fan_out_that_is_over_waits_for_a_version_with_its_aggregator() -> None:
    old, other = fan_out(2), one_task()
    with TestOrchestrator(old) as kit:

        @kit.task("work")
        async def work(params: dict[str, int]) -> int:
            await asyncio.sleep(10)
            return params["n"]

        job = kit.submit("script")
        kit.skip(1)
        kit.forget(old)
        kit.register(other)
        kit.crash()
        kit.skip(60)
        waiting = kit.get(job)
        assert (waiting.version, waiting.status.terminal) == (old.version, False)
        kit.register(old)
        assert kit.wait(job).status is JobStatus.FINISHED


def test_messages_that_nobody_was_told_about_are_delivered() -> None:
    child = script(lambda context, actions: actions.transition_to("over"), "over", name="child")
    parent = script(
        lambda context, actions: actions.run_blueprint("child", transitions={"over": "done"}), "done"
    )
    with TestOrchestrator(parent, child) as kit:
        kit.director.hints.handlers[HintKind.MESSAGE] = ()
        job = kit.submit("script")
        kit.skip(5)
        assert kit.get(job).status is JobStatus.FINISHED
        assert types(kit.events(job)).count("child_finished") == 1


def test_two_rescuers_deliver_a_message_once() -> None:
    child = script(lambda context, actions: actions.transition_to("over"), "over", name="child")
    parent = script(
        lambda context, actions: actions.run_blueprint("child", transitions={"over": "done"}), "done"
    )
    with TestOrchestrator(parent, child) as kit:
        kit.director.hints.handlers[HintKind.MESSAGE] = ()
        jobs = [kit.submit("script") for _ in range(5)]
        first, second = rescuer(kit), rescuer(kit)

        async def race() -> None:
            await asyncio.gather(first.run_once(kit.clock.now()), second.run_once(kit.clock.now()))

        kit.call(race)
        for job in jobs:
            assert kit.wait(job).status is JobStatus.FINISHED
            assert types(kit.events(job)).count("child_finished") == 1
