"""Words of workers that are wrong, strange or said twice: nobody else suffers from them."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from regista import JobStatus, RetryPolicy, Submission
from regista.model import ResultVerdict, TaskResult, split_attempt_id
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, one_task, script


def ask(context: Any, actions: Any) -> None:
    actions.await_human_approval("Really?", {"success": "done", "no": "done"})


def at_once(kit: TestOrchestrator, *results: TaskResult) -> list[ResultVerdict]:
    """Deliver all of them in one turn."""

    async def report() -> list[ResultVerdict]:
        return await asyncio.gather(*[kit.director.workers.report(each) for each in results])

    return kit.call(report)


def test_a_result_counts_only_for_the_job_of_its_attempt() -> None:
    with TestOrchestrator(one_task(name="mine"), script(ask, "done", name="theirs")) as kit:
        puppet = Puppet(kit)
        puppet.join()
        mine, theirs = kit.submit("mine"), kit.submit("theirs")
        puppet.settle()
        (task,) = puppet.tasks
        stolen = replace(puppet.result(task, {"stolen": 1}), job_id=theirs.id)
        assert puppet.deliver(stolen) is ResultVerdict.STALE_TASK
        assert kit.get(theirs).status is JobStatus.WAITING_FOR_HUMAN
        assert kit.get(theirs).data == {}
        connected = kit.director.dispatcher.find("puppet")
        assert connected is not None
        assert task.attempt_id in connected.attempts  # it has not been done
        assert puppet.finish(task) is ResultVerdict.ACCEPTED
        assert kit.get(mine).status is JobStatus.FINISHED


def test_a_branch_that_is_answered_for_another_job_keeps_its_fan_out_open() -> None:
    with TestOrchestrator(fan_out(2), script(ask, "done", name="theirs")) as kit:
        puppet = Puppet(kit)
        puppet.join()
        fan, theirs = kit.submit("script"), kit.submit("theirs")
        puppet.settle()
        first, second = puppet.tasks
        wrong = replace(puppet.result(first), job_id=theirs.id)
        assert puppet.deliver(wrong) is ResultVerdict.STALE_TASK
        assert puppet.finish(second) is ResultVerdict.ACCEPTED
        assert puppet.finish(first) is ResultVerdict.ACCEPTED
        assert kit.get(fan).status is JobStatus.FINISHED


@pytest.mark.parametrize("attempt_id", ["x-²", "x-" + "9" * 5000, "x-٣", "-1", ""])
def test_an_attempt_id_may_be_any_text(attempt_id: str) -> None:
    assert split_attempt_id(attempt_id) == (attempt_id, 0)


@pytest.mark.parametrize("attempt_id", ["x-²", "x-" + "9" * 5000])
def test_a_strange_result_hurts_nobody_in_its_turn_and_a_strange_sign_no_other_sign(attempt_id: str) -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        service = kit.director.workers
        service.progress(task.attempt_id, 0.5, checkpoint="kept")
        service.progress(attempt_id, 0.5)
        kit.call(service.write_signs)
        assert kit.call(lambda: kit.director.storage.tasks_of(job.id))[0].checkpoint == "kept"
        strange = replace(puppet.result(task), task_id=attempt_id)
        assert at_once(kit, strange, puppet.result(task)) == [
            ResultVerdict.STALE_TASK,
            ResultVerdict.ACCEPTED,
        ]


def test_a_time_without_a_zone_is_no_time() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        naive = replace(puppet.result(puppet.tasks[0]), started_at=datetime(2026, 1, 1))  # noqa: DTZ001
        assert puppet.deliver(naive) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED


def test_a_key_that_comes_twice_in_a_batch_takes_one_slot() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, capacity=2)
        puppet.join()
        same = Submission(blueprint="script", idempotency_key="once")
        one, two = kit.call(lambda: kit.director.submit_many([same, same]))
        puppet.settle()
        connected = kit.director.dispatcher.find("puppet")
        assert connected is not None
        assert one.id == two.id  # type: ignore[union-attr]
        assert list(connected.attempts) == [task.attempt_id for task in puppet.tasks]
        assert (len(puppet.tasks), connected.free) == (1, 1)


def test_a_result_that_comes_twice_at_once_frees_one_slot_and_takes_one() -> None:
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("work", {}, transitions={"success": "then"})

    def then(context: Any, actions: Any) -> None:
        actions.dispatch_task("work", {}, transitions={"success": "done"})

    with TestOrchestrator(script(start, "done", then=then)) as kit:
        puppet = Puppet(kit, capacity=2)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        result = puppet.result(puppet.tasks[0])
        verdicts = at_once(kit, result, result)
        puppet.settle()
        connected = kit.director.dispatcher.find("puppet")
        assert connected is not None
        assert verdicts == [ResultVerdict.ACCEPTED, ResultVerdict.ACCEPTED]
        assert (list(connected.attempts), connected.free) == ([puppet.tasks[-1].attempt_id], 1)


def test_progress_counts_only_from_whoever_has_the_attempt() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet, thief = Puppet(kit, "work"), Puppet(kit, "other", id="thief")
        puppet.join()
        thief.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        service = kit.director.workers
        service.progress(task.attempt_id, 0.99, "told by a thief", worker_id="thief")
        service.progress(task.attempt_id, 7.0, "really", worker_id="puppet")
        kit.call(service.write_signs)
        (stored,) = kit.call(lambda: kit.director.storage.tasks_of(job.id))
    assert (stored.progress, stored.progress_message) == (1.0, "really")


def test_a_checkpoint_that_no_store_could_keep_is_dropped_and_the_task_is_retried_all_the_same() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=0.0))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.director.workers.progress(puppet.tasks[0].attempt_id, 0.5, checkpoint=2**70, worker_id="puppet")
        puppet.fail(puppet.tasks[0], "TRANSIENT_ERROR")
        kit.skip(1)
        assert [(task.attempt, task.checkpoint) for task in puppet.tasks] == [(1, None), (2, None)]
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER
