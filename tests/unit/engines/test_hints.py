"""Every effect follows from stored state: a lost nudge delays a job and never strands it. FENCES 4, 7."""

import asyncio
from typing import Any, Literal

import pytest

from regista import Job, JobStatus
from regista.blueprint import ActionFactory, JobContext
from regista.config import Config
from regista.engines.native.hints import HintRouter
from regista.storage.base import Hint, HintKind
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, one_task, script


@pytest.mark.parametrize("lost", list(HintKind))
def test_a_job_of_every_kind_ends_although_all_nudges_of_a_kind_are_lost(
    lost: HintKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch = HintRouter.dispatch

    def lose(self: HintRouter, hint: Hint) -> None:
        if hint.kind is not lost:
            dispatch(self, hint)

    monkeypatch.setattr(HintRouter, "dispatch", lose)
    child = script(lambda context, actions: actions.sleep(5, then="over"), "over", name="child")

    def start(context: JobContext, actions: ActionFactory) -> None:
        for n in range(3):
            actions.dispatch_task("work", {"n": n}, transitions={"success": "join"})

    def join(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("child", transitions={"success": "nap"})

    blueprint = script(
        start,
        "done",
        aggregators=["join"],
        join=join,
        nap=lambda context, actions: actions.sleep(3, then="done"),
    )
    with TestOrchestrator(blueprint, child) as kit:

        @kit.task("work")
        def work(params: dict[str, Any], context: Any) -> None:
            if context.attempt == 1:
                raise RuntimeError("once more")

        began = kit.now
        assert kit.run("script").status is JobStatus.FINISHED
        assert (kit.now - began).total_seconds() < 60


def test_a_cancel_whose_word_to_the_worker_was_lost_is_said_again_with_the_heartbeat() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        task = puppet.tasks[0]
        attempt = task.attempt_id
        assert kit.cancel(job).status is JobStatus.CANCELLING
        assert puppet.cancels == [attempt]
        puppet.cancels.clear()  # it never heard it
        assert puppet.beat(attempt).cancel == (attempt,)
        # and after a crash the reconnect and the heartbeat say it too
        kit.crash()
        assert puppet.join(attempt) == (attempt,)
        assert puppet.beat(attempt).cancel == (attempt,)
        puppet.finish(task, status="cancelled")
        assert kit.get(job).status is JobStatus.CANCELLED


def test_the_child_is_born_in_the_write_of_its_parent_with_an_id_that_follows_from_it() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        if context.attempt == 1:
            actions.run_blueprint("child", transitions={"success": "done"})
            raise RuntimeError("after the wish, before the decision")
        actions.run_blueprint("child", transitions={"success": "done"})

    child = script(lambda context, actions: actions.sleep(5, then="over"), "over", name="child")
    with TestOrchestrator(script(start, "done"), child) as kit:
        job = kit.submit("script")
        kit.skip(2)
        waiting = kit.get(job)
        assert waiting.status is JobStatus.WAITING_FOR_CHILD
        kit.crash()
        assert kit.wait(job).status is JobStatus.FINISHED
        assert len(kit.jobs()) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_end_of_a_child_reaches_its_parent_over_a_crash_before_and_after_the_message(
    when: Literal["before", "after"],
) -> None:
    child = script(lambda context, actions: actions.transition_to("over"), "over", name="child")
    parent = script(
        lambda context, actions: actions.run_blueprint("child", transitions={"over": "done"}), "done"
    )
    for boundary in range(1, 6):
        with TestOrchestrator(parent, child) as kit:
            kit.crash_at(boundary, when)
            assert kit.run("script").state == "done"


def test_an_offer_that_a_crash_swallowed_is_made_again() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        runs: list[int] = []

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            runs.append(params["n"])

        kit.crash_at(1, "after")  # the offers are durable, and nobody was told
        assert kit.run("script").status is JobStatus.FINISHED
        assert kit.crashes == 1
        assert sorted(runs) == [0, 1, 2]


def test_whoever_waits_for_a_job_is_woken_or_looks_again() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()

        async def both() -> list[Job]:
            waiters = [asyncio.ensure_future(kit.director.wait(job.id, 60)) for _ in range(3)]
            await asyncio.sleep(0.5)
            await kit.director.workers.deliver(puppet.result(puppet.tasks[0]))
            return await asyncio.gather(*waiters)

        began = kit.now
        assert [one.status for one in kit.call(both)] == [JobStatus.FINISHED] * 3
        assert (kit.now - began).total_seconds() < 1


def test_a_wait_that_is_over_returns_the_job_as_it_is() -> None:
    with TestOrchestrator(one_task(), config=Config(instance_id="test")) as kit:
        job = kit.submit("script")
        kept = kit.call(lambda: kit.director.wait(job.id, 3))
        assert kept.status is JobStatus.WAITING_FOR_WORKER
