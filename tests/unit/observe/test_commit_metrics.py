from datetime import UTC, datetime, timedelta
from typing import Any

from regista.model import (
    AttemptState,
    Change,
    ChildJob,
    CommitOutcome,
    CommitStatus,
    Event,
    EventType,
    Job,
    JobStatus,
    Profile,
    Task,
    TaskWrite,
    Worker,
)
from regista.observe.commit_metrics import CommitMetrics, CommitTotals, warm_for
from regista.observe.metrics import Metrics

NOW = datetime(2026, 1, 1, tzinfo=UTC)
APPLIED = CommitOutcome(CommitStatus.APPLIED)
WARM = Worker(id="w", skills=("work",), profile=Profile(hot=("work", "llama")))


def job(**more: Any) -> Job:
    facts = {"id": "j", "blueprint": "b", "version": "v", "state": "s", "created_at": NOW, "updated_at": NOW}
    return Job(**{**facts, **more})


def task(**more: Any) -> Task:
    return Task(**{"id": "j_1_0", "job_id": "j", "type": "work", "queued_at": NOW, **more})


def event(kind: EventType, **more: Any) -> Event:
    return Event(type=kind, at=NOW, **more)


def counted(*changes: Change, outcome: CommitOutcome = APPLIED, now: datetime = NOW) -> Metrics:
    of = Metrics()
    book = CommitMetrics(of, lambda worker_id: WARM if worker_id == "w" else None)
    book.loaded([job(id="seen", blueprint="looked"), None])
    book.committed(changes, [outcome] * len(changes), now)
    return of


def test_a_new_job_and_its_children_are_counted_by_blueprint() -> None:
    born = ChildJob(job(id="c", blueprint="child"), ())

    of = counted(Change(job_id="j", token="t", job=job(), children=(born,)))

    assert of.jobs.values == {("b",): 1, ("child",): 1}


def test_what_was_refused_or_repeated_is_not_counted() -> None:
    change = Change(job_id="j", token="t", job=job())

    for kind in (CommitStatus.REPEATED, CommitStatus.STALE, CommitStatus.EXISTS):
        assert counted(change, outcome=CommitOutcome(kind)).jobs.values == {}


def test_an_end_is_counted_by_status_with_its_duration() -> None:
    ended = event(EventType.JOB_FINISHED, status="failed", duration_ms=2500)

    of = counted(Change(job_id="j", token="t", job=job(), expected=1, events=(ended,)))

    assert of.jobs_ended.values == {("b", "failed"): 1}
    assert of.jobs_failed.values == {("b",): 1}
    assert of.job_duration.values["b", "failed"].total == 2.5
    assert of.jobs.values == {}


def test_a_task_that_is_offered_in_the_write_that_makes_it_has_waited_for_the_flush_only() -> None:
    offered = task(state=AttemptState.OFFERED, worker_id="w", offered_at=NOW, queue="q")

    of = counted(
        Change(job_id="j", token="t", job=job(), expected=1, tasks=(TaskWrite(offered),)),
        now=NOW + timedelta(milliseconds=20),
    )

    assert of.schedule_to_start.values[("q",)].total == 0.02
    assert of.hot.values == {("b", "skill"): 1}


def test_a_task_that_waits_has_not_started() -> None:
    of = counted(Change(job_id="j", token="t", job=job(), expected=1, tasks=(TaskWrite(task()),)))

    assert of.schedule_to_start.values == {}


def test_a_claimed_task_has_waited_since_it_could_run() -> None:
    of = Metrics()
    book = CommitMetrics(of, lambda _: None)
    book.loaded([job(id="j", blueprint="b")])

    book.claimed(WARM, [task(), task(queued_at=None)], NOW + timedelta(seconds=9))

    assert of.schedule_to_start.values[("work",)].total == 9
    assert of.hot.values == {("b", "skill"): 2}


def test_attempts_are_counted_by_what_they_came_to() -> None:
    closed = TaskWrite(task(state=AttemptState.CLOSED), 1, (AttemptState.OFFERED,))
    events = (
        event(EventType.TASK_FINISHED, task_id="j_1_0", status="success", duration_ms=40),
        event(EventType.TASK_FAILED, task_id="j_1_0", status="failure", duration_ms=60),
        event(EventType.TASK_LOST, task_id="j_1_0"),
        event(EventType.TASK_UNDELIVERED, task_id="j_1_0"),
        event(EventType.TASK_RETRIED, task_id="j_1_0"),
    )

    of = counted(Change(job_id="j", token="t", tasks=(closed,), events=events))

    outcomes = ("success", "failure", "lost", "undelivered")
    assert of.attempts.values == {("work", outcome): 1 for outcome in outcomes}
    assert of.attempt_duration.values[("work",)].total == 0.1
    assert of.retries.values == {("work",): 1}


def test_a_change_of_tasks_alone_is_counted_for_the_blueprint_of_its_job() -> None:
    late = event(EventType.TASK_TIMED_OUT, task_id="seen_1_0", code="attempt_timeout")
    write = TaskWrite(task(id="seen_1_0", job_id="seen"), 1)

    of = counted(Change(job_id="seen", token="t", tasks=(write,), events=(late,)))

    assert of.timeouts.values == {("looked", "attempt_timeout"): 1}
    assert of.attempts.values == {("work", "timed_out"): 1}


def test_a_quarantine_counts_as_settled_and_names_what_is_too_deep() -> None:
    deep = event(EventType.JOB_QUARANTINED, code="too_deep")
    broken = event(EventType.STATE_FAILED, state="start")

    of = counted(Change(job_id="j", token="t", job=job(), expected=1, events=(broken, deep)))

    assert of.jobs_ended.values == {("b", "quarantined"): 1}
    assert of.too_deep.values == {("b",): 1}
    assert of.handler_failures.values == {("b", "start"): 1}


def test_the_memory_of_blueprints_is_bounded() -> None:
    book = CommitMetrics(Metrics(), lambda _: None)

    book.loaded([job(id=str(number)) for number in range(10_050)])

    assert len(book._blueprints) == 10_000
    assert "0" not in book._blueprints


def test_a_worker_is_warm_for_a_skill_or_for_a_model_that_is_asked_for() -> None:
    assert warm_for(task(), WARM) == "skill"
    assert warm_for(task(type="chat", requirements={"models": ["llama"]}), WARM) == "model"
    assert warm_for(task(type="chat"), WARM) == ""


def test_a_tally_adds_up_to_the_same_as_counting_one_by_one() -> None:
    # given
    of, tally = Metrics(), CommitTotals()
    of.jobs.add(("a",))
    # when
    tally.jobs["a"] += 2
    for status, seconds in ((JobStatus.FINISHED, 0.5), (JobStatus.FAILED, 7.0), (JobStatus.FINISHED, 0.25)):
        tally.ended["a", status].append(seconds)
    tally.told["work", "success"].append(0.0)
    tally.waited["queue"].append(1.0)
    tally.pour(of)
    # then
    assert of.jobs.values == {("a",): 3}
    assert of.jobs_ended.values == {("a", "finished"): 2, ("a", "failed"): 1}
    assert of.jobs_failed.values == {("a",): 1}
    assert of.job_duration.values["a", "finished"].total == 0.75
    assert {type(status) for _, status in of.jobs_ended.values} == {str}
    assert of.attempts.values == {("work", "success"): 1}
    assert list(of.attempt_duration.values) == [("work",)]
    assert of.schedule_to_start.values["queue",].total == 1.0
