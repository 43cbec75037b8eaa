import asyncio
import re
from typing import Any

import msgspec

from regista.cli.parser import build_parser
from regista.dispatch.dispatcher import Dispatcher
from regista.dispatch.explain_job import Disconnection, explain_job, group_waiting_tasks
from regista.model import (
    AttemptState,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    AwaitVersion,
    Cancellation,
    Fault,
    JobStatus,
    Task,
)
from regista.model.explanation import Explanation, Reason
from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import START, at, dispatch, make_job, make_task


def told(*tasks: Task, **fields: Any) -> tuple[Explanation, list[str]]:
    found = explain_job(make_job(**fields), tasks)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Explanation) == found
    assert all(isinstance(sentence, str) for sentence in found.sentences())
    return found, [reason.code for reason in found.reasons]


def test_a_job_that_waits_for_a_person_says_what_can_be_decided() -> None:
    wait = AwaitHuman("publish?", {"yes": "a", "no": "b"})
    found, codes = told(status=JobStatus.WAITING_FOR_HUMAN, wait=wait, waiting_since=at(7))
    assert (codes, found.since) == (["waiting_for_human"], at(7))
    assert found.reasons[0].detail == "publish?"
    typed = re.findall(r"regista (jobs approve \S+ --decision \S+?)(?:,|$)", found.reasons[0].unblock)
    assert [build_parser().parse_args(one.split()).decision for one in typed] == ["no", "yes"]


def test_a_decision_that_has_a_command_of_its_own_is_given_by_it() -> None:
    wait = AwaitHuman("publish?", {"approve": "a", "reject": "b"})
    found, _ = told(status=JobStatus.WAITING_FOR_HUMAN, wait=wait)
    job_id = found.id
    assert found.reasons[0].unblock == f"regista jobs approve {job_id}, or regista jobs reject {job_id}"


def test_a_job_that_has_failed_says_how_to_begin_again() -> None:
    found, codes = told(status=JobStatus.FAILED, error=Fault("PERMANENT_ERROR", "no codec"))
    assert codes == ["PERMANENT_ERROR"]
    assert f"regista jobs fork {found.id}" in found.reasons[0].unblock


def test_a_job_that_waits_for_its_child_names_it() -> None:
    wait = AwaitChild("child-9", "film", {})
    found, codes = told(status=JobStatus.WAITING_FOR_CHILD, wait=wait)
    assert codes == ["waiting_for_child"]
    assert "child-9" in found.summary


def test_a_job_that_waits_for_the_clock_says_until_when() -> None:
    found, codes = told(status=JobStatus.WAITING_FOR_TIMER, wait=AwaitTimer(at(90), "next"))
    assert codes == ["waiting_for_timer"]
    assert "12:01:30" in found.summary


def test_a_handler_that_failed_is_paused() -> None:
    found, codes = told(status=JobStatus.RUNNING, wait=AwaitRetry(at(90), 2))
    assert codes == ["paused_until"]
    assert "failed 2 times" in found.reasons[0].detail


def test_a_version_that_nobody_has_is_named() -> None:
    fan_out = AwaitBranches("join", 2, missing="v9")
    for status, wait in ((JobStatus.RUNNING, AwaitVersion("v9")), (JobStatus.WAITING_FOR_PARALLEL, fan_out)):
        found, codes = told(status=status, wait=wait)
        assert codes == ["blueprint_version_missing"]
        assert "v9" in found.summary


def test_a_fan_out_says_how_many_branches_are_open_and_which_block() -> None:
    branches = [
        make_task(index=n, branch=True, state=AttemptState.CLOSED if n < 3 else AttemptState.STARTED, worker_id="w")
        for n in range(10)
    ]  # fmt: skip
    found, codes = told(*branches, status=JobStatus.WAITING_FOR_PARALLEL, wait=AwaitBranches("join", 10))
    assert "7 of 10 branches" in found.summary
    assert codes == ["task_running"] * 5 + ["more_branches"]
    assert "job-1_1_3" in found.reasons[0].detail


def test_branches_that_wait_for_the_same_are_told_once_and_counted() -> None:
    branches = [make_task(index=n, branch=True) for n in range(4)]
    branches += [make_task(index=4, branch=True, type="sing")]
    branches += [make_task(index=n, branch=True, not_before=at(90 - n)) for n in (5, 6)]
    groups = group_waiting_tasks(branches)
    assert [[task.index for task in group] for group in groups] == [[0, 1, 2, 3], [4], [6, 5]]

    busy, skill = Reason("queue_not_served", "day", "…", 2), Reason("no_worker_with_skill", "sing", "…", 2)
    one, two = [Explanation(kind="task", id="t", summary="", reasons=(skill, each)) for each in (busy, busy)]
    job = make_job(status=JobStatus.WAITING_FOR_PARALLEL, wait=AwaitBranches("join", 7))
    found = explain_job(job, branches, [(one, 4), (two, 1)])
    assert [(reason.code, reason.workers, reason.tasks) for reason in found.reasons] == [
        ("queue_not_served", 2, 5),
        ("no_worker_with_skill", 2, 5),
    ]
    assert "5 tasks wait for that." in found.sentences()[1]


def test_a_task_whose_worker_is_not_connected_says_until_when_that_can_last() -> None:
    task = make_task(state=AttemptState.STARTED, worker_id="w3", started_at=at(1))
    job = make_job(status=JobStatus.WAITING_FOR_WORKER, wait=AwaitTask(task.id))
    (known,) = explain_job(job, [task], absent={"w3": Disconnection(at(5), at(35))}).reasons
    assert (known.code, "not connected since 2026-03-01T12:00:05" in known.detail) == (
        "worker_disconnected",
        True,
    )
    assert "its lease ends at 2026-03-01T12:00:35" in known.unblock
    (unknown,) = explain_job(job, [task], absent={"w3": Disconnection()}).reasons
    assert "is not connected" in unknown.detail
    assert not known.unblock.startswith("wait")


def test_a_task_in_the_hands_of_a_worker_tells_how_far_it_is() -> None:
    task = make_task(state=AttemptState.STARTED, worker_id="w3", progress=0.4, started_at=at(1))
    found, codes = told(task, status=JobStatus.WAITING_FOR_WORKER, wait=AwaitTask(task.id))
    assert codes == ["task_running"]
    assert "'w3'" in found.reasons[0].detail
    assert "40% done" in found.reasons[0].detail


def test_a_job_that_is_being_cancelled_says_who_must_confirm() -> None:
    task = make_task(state=AttemptState.STARTED, worker_id="w3")
    found, codes = told(
        task, status=JobStatus.CANCELLING, wait=AwaitTask(task.id), cancel=Cancellation(at(0), at(30))
    )
    assert codes == ["cancelling"]
    assert "by w3, until" in found.reasons[0].detail


def test_a_running_a_quarantined_and_an_ended_job_say_so() -> None:
    assert told(status=JobStatus.RUNNING)[1] == ["handler"]
    found, codes = told(status=JobStatus.QUARANTINED, error=Fault("handler_failed", "boom"))
    assert (codes, "regista jobs retry job-1 " in found.reasons[0].unblock) == (["handler_failed"], True)
    found, codes = told(status=JobStatus.FINISHED, state="done")
    assert (codes, "has ended as finished in state 'done'" in found.summary) == ([], True)


def test_the_dispatcher_explains_a_job_down_to_its_waiting_task() -> None:
    async def run() -> Explanation:
        clock = Clock(START)
        storage = MemoryStorage(clock)
        await storage.start()
        dispatcher = Dispatcher(storage, clock)
        try:
            job = await dispatch(storage, make_task())
            return await dispatcher.explain_job(job)
        finally:
            await dispatcher.stop()
            await storage.stop()

    found = asyncio.run(run())
    assert "waits for task job-1_1_0" in found.summary
    assert [reason.code for reason in found.reasons] == ["no_worker_with_skill"]
