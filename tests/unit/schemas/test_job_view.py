from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

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
    Event,
    EventType,
    Fault,
    Job,
    JobStatus,
    Task,
    Wait,
)
from regista.schemas.job_view import job_view

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_job(status: JobStatus = JobStatus.RUNNING, **fields: Any) -> Job:
    return Job(
        id="job",
        blueprint="b",
        version="v",
        state="s",
        created_at=START,
        updated_at=START,
        status=status,
        **fields,
    )


def make_task(number: int = 0, **fields: Any) -> Task:
    return Task(id=f"job_1_{number}", job_id="job", type="resize", **fields)


def make_event(kind: EventType, attempt: int = 1, **fields: Any) -> Event:
    return Event(type=kind, at=START, task_id="job_1_0", attempt=attempt, **fields)


def test_attempts_are_told_from_events_in_the_order_in_which_they_began() -> None:
    later = START + timedelta(seconds=5)
    events = [
        Event(type=EventType.JOB_CREATED, at=START),
        make_event(EventType.TASK_DISPATCHED, detail={"type": "resize"}),
        make_event(EventType.TASK_STARTED, worker_id="w1"),
        make_event(
            EventType.TASK_FAILED, worker_id="w1", code="TRANSIENT_ERROR", message="no", duration_ms=1500.0
        ),
        make_event(EventType.TASK_RETRIED, attempt=2),
        make_event(EventType.TASK_LOST, attempt=2, worker_id="w2"),
        make_event(EventType.TASK_RETRIED, attempt=3),
        Event(type=EventType.TASK_STARTED, at=later, task_id="job_1_0", attempt=3, worker_id="w3"),
        make_event(
            EventType.TASK_FINISHED, attempt=3, duration_ms=500.0, detail={"cost": 0.25}, status="success"
        ),
    ]

    told = job_view(make_job(JobStatus.FINISHED), events)

    assert [(one.task_id, one.worker_id, one.state) for one in told.attempts] == [
        ("job_1_0-1", "w1", "failed"),
        ("job_1_0-2", "w2", "lost"),
        ("job_1_0-3", "w3", "finished"),
    ]
    assert [(one.attempt_id, one.attempt, one.type) for one in told.attempts] == [
        ("job_1_0-1", 1, "resize"),
        ("job_1_0-2", 2, "resize"),
        ("job_1_0-3", 3, "resize"),
    ]
    assert told.attempts[0].error is not None
    assert told.attempts[0].error.code == "TRANSIENT_ERROR"
    assert told.attempts[2].started_at == later
    assert (told.bill.seconds, told.bill.cost) == (2.0, 0.25)
    assert told.progress == 1.0


def test_an_attempts_error_has_what_the_worker_told_beyond_words() -> None:
    told = {"traceback": ["line 1", "line 2"]}
    events = [
        make_event(EventType.TASK_FAILED, code="PERMANENT_ERROR", message="no", detail={"error": told}),
        make_event(EventType.TASK_FAILED, attempt=2, code="PERMANENT_ERROR", message="no"),
    ]

    with_more, without = [one.error for one in job_view(make_job(), events).attempts]

    assert msgspec.to_builtins(with_more) == {"code": "PERMANENT_ERROR", "message": "no", "details": told}
    assert msgspec.to_builtins(without) == {"code": "PERMANENT_ERROR", "message": "no"}


def test_open_tasks_say_more_than_the_events_do_yet() -> None:
    task = make_task(state=AttemptState.OFFERED, worker_id="w1", progress=0.5)

    told = job_view(make_job(wait=AwaitTask("job_1_0")), [make_event(EventType.TASK_DISPATCHED)], [task])

    assert [(one.state, one.worker_id, one.type) for one in told.attempts] == [("offered", "w1", "resize")]
    assert told.progress == 0.5


def test_an_attempt_that_was_open_when_its_job_ended_was_called_off() -> None:
    told = job_view(make_job(JobStatus.CANCELLED), [make_event(EventType.TASK_STARTED)])

    assert [one.state for one in told.attempts] == ["cancelled"]


def test_the_progress_of_a_fan_out_is_the_mean_of_its_branches() -> None:
    tasks = [make_task(0, state=AttemptState.CLOSED), make_task(1, progress=0.5), make_task(2)]

    assert job_view(make_job(), tasks=tasks).progress == 0.5
    assert job_view(make_job(), tasks=[make_task(1)]).progress is None


@pytest.mark.parametrize(
    ("wait", "kind", "detail"),
    [
        (
            AwaitTask("job_1_0"),
            "worker",
            {"task_id": "job_1_0", "attempt_id": "job_1_0-1", "type": "resize", "queue": "resize"},
        ),
        (AwaitTask("job_1_9"), "worker", {"task_id": "job_1_9"}),
        (AwaitBranches("join", 4), "parallel", {"aggregator": "join", "total": 4, "open": 1}),
        (
            AwaitBranches("join", 4, missing="v9"),
            "version",
            {"version": "v9", "reason": "blueprint_version_missing"},
        ),
        (
            AwaitHuman("sure?", {"yes": "a", "no": "b"}),
            "human",
            {"message": "sure?", "decisions": ["no", "yes"], "integration": None, "token": "secret"},
        ),
        (AwaitChild("child", "cut", {}), "child", {"child_id": "child", "blueprint": "cut"}),
        (AwaitTimer(START, "next"), "timer", {"until": START, "then": "next"}),
        (AwaitRetry(START, 2), "retry", {"until": START, "failures": 2}),
        (AwaitVersion("v9"), "version", {"version": "v9", "reason": "blueprint_version_missing"}),
    ],
)
def test_what_a_job_waits_for_is_told_by_kind(wait: Wait, kind: str, detail: dict[str, Any]) -> None:
    job = make_job(wait=wait, waiting_since=START)

    waiting = job_view(job, tasks=[make_task()], token="secret").waiting_for

    assert waiting is not None
    assert (waiting.kind, waiting.detail, waiting.since) == (kind, detail, START)


def test_a_quarantined_job_waits_for_its_release_and_a_cancelled_one_for_its_worker() -> None:
    sick = job_view(make_job(JobStatus.QUARANTINED, error=Fault("lost", "gone"))).waiting_for
    until = START + timedelta(seconds=30)
    ending = make_job(
        JobStatus.CANCELLING, cancel=Cancellation(START, until, "enough"), wait=AwaitTask("job_1_0")
    )
    going = job_view(ending).waiting_for

    assert sick is not None
    assert sick.kind == "release"
    assert going is not None
    assert (going.kind, going.detail) == ("cancel", {"reason": "enough", "until": until})


def test_an_ended_job_waits_for_nothing() -> None:
    assert job_view(make_job(JobStatus.FAILED, wait=AwaitTask("job_1_0"))).waiting_for is None


def test_times_are_shown_as_asked_for() -> None:
    zone = ZoneInfo("Europe/Madrid")

    told = job_view(
        make_job(JobStatus.FINISHED, finished_at=START),
        show=lambda moment: moment and moment.astimezone(zone),
    )

    assert told.created_at == START
    assert told.created_at.tzinfo is zone
    assert told.finished_at is not None
    assert told.finished_at.isoformat().endswith("+01:00")
