from datetime import timedelta

from regista.model import (
    AttemptState,
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    EventType,
    TaskWrite,
)
from regista.observe.spans import SpanObserver, SpanRecord
from regista.trace_context import span_id_of, span_in
from tests.unit.observe.test_commit_metrics import NOW, event, job, task

PARENT = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
UNSAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}


def told(change: Change, kind: CommitStatus = CommitStatus.APPLIED) -> list[SpanRecord]:
    records: list[SpanRecord] = []
    SpanObserver(records.append).committed([change], [CommitOutcome(kind)], NOW)
    return records


def ended(**more: object) -> Event:
    return event(EventType.JOB_FINISHED, **{"status": "finished", **more})


def test_the_end_of_a_job_tells_of_the_whole_of_it_below_whoever_asked() -> None:
    traced = job(tracing_context=PARENT, created_at=NOW - timedelta(seconds=3))

    (span,) = told(Change(job_id="j", token="t", job=traced, expected=1, events=(ended(),)))

    assert span.name == "job b"
    assert span.place.span_id == span_id_of("j")
    assert span.parent_id == "b" * 16
    assert (span.end - span.start).total_seconds() == 3
    assert span.error is None
    # and everything that the job began knows that id
    below = span_in(traced.trace)
    assert below is not None
    assert below == span.place


def test_a_failed_job_says_why() -> None:
    failed = ended(status="failed", code="no_luck", message="none at all")

    (span,) = told(
        Change(job_id="j", token="t", job=job(tracing_context=PARENT), expected=1, events=(failed,))
    )

    assert span.error == "no_luck: none at all"


def test_what_nobody_traces_or_samples_or_what_was_refused_is_not_told() -> None:
    for context in ({}, UNSAMPLED, {"traceparent": "nonsense"}):
        change = Change(
            job_id="j", token="t", job=job(tracing_context=context), expected=1, events=(ended(),)
        )
        assert told(change) == []
    traced = Change(job_id="j", token="t", job=job(tracing_context=PARENT), expected=1, events=(ended(),))
    assert told(traced, CommitStatus.STALE) == []


def test_an_attempt_is_a_span_of_its_own_from_its_place_in_line_to_its_result() -> None:
    closed = task(
        tracing_context=PARENT,
        state=AttemptState.CLOSED,
        queued_at=NOW - timedelta(seconds=5),
        queue="q",
    )
    done = event(
        EventType.TASK_FINISHED,
        task_id="j_1_0",
        attempt=1,
        worker_id="w",
        status="success",
        duration_ms=2000,
    )

    (span,) = told(Change(job_id="j", token="t", tasks=(TaskWrite(closed, 1),), events=(done,)))

    assert span.place.span_id == span_id_of(closed.attempt_id)
    assert span.parent_id == span_id_of("j")
    assert (span.end - span.start).total_seconds() == 5
    assert span.attributes["regista.schedule_to_start_s"] == 3
    assert span.attributes["regista.worker_id"] == "w"
    below = span_in(closed.trace)
    assert below is not None
    assert below.span_id == span.place.span_id


def test_a_failed_attempt_that_is_tried_again_keeps_its_own_span() -> None:
    again = task(tracing_context=PARENT, attempt=2, queued_at=NOW)
    failed = event(
        EventType.TASK_FAILED, task_id="j_1_0", attempt=1, status="failure", duration_ms=1000, code="OOPS"
    )

    (span,) = told(Change(job_id="j", token="t", tasks=(TaskWrite(again, 1),), events=(failed,)))

    assert span.place.span_id == span_id_of("j_1_0-1")
    assert (span.end - span.start).total_seconds() == 1
    assert span.error == "OOPS"


def test_the_end_of_a_task_that_the_change_does_not_hold_is_nobodys_span() -> None:
    lost = event(EventType.TASK_LOST, task_id="else_1_0", attempt=1)

    assert told(Change(job_id="j", token="t", events=(lost,))) == []
