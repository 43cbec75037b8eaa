"""Notices: one word for each change that settles a job or asks a person; small, and never in the way of the write."""

from datetime import UTC, datetime
from typing import Any

import pytest

from regista import Event, EventType, Job, JobStatus
from regista.machine.step import Step
from regista.model import Fault, Record
from regista.model.delivery import MAX_BYTES, WebhookDelivery, delivery_of, webhook_records

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = Event(type=EventType.JOB_FINISHED, at=NOW)


def job(status: JobStatus = JobStatus.FINISHED, **more: Any) -> Job:
    facts: dict[str, Any] = {
        "id": "j",
        "blueprint": "b",
        "version": "v",
        "state": "done",
        "created_at": NOW,
        "updated_at": NOW,
        "revision": 3,
        "status": status,
        "webhook_url": "https://example.com",
    }
    return Job(**facts | more)


def word(job: Job, *events: Event) -> WebhookDelivery | None:
    writes = webhook_records(job, events)
    if not writes:
        return None
    (write,) = writes
    assert write.value is not None
    assert write.due == NOW
    return delivery_of(Record(write.collection, write.key, write.value, 1))


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (JobStatus.FINISHED, EventType.JOB_FINISHED),
        (JobStatus.FAILED, EventType.JOB_FINISHED),
        (JobStatus.CANCELLED, EventType.JOB_FINISHED),
        (JobStatus.QUARANTINED, EventType.JOB_QUARANTINED),
        (JobStatus.WAITING_FOR_HUMAN, EventType.APPROVAL_REQUESTED),
    ],
)
def test_what_settles_a_job_or_asks_a_person_is_told(status: JobStatus, event: EventType) -> None:
    told = word(job(status), Event(type=EventType.STATE_STARTED, at=NOW), Event(type=event, at=NOW))
    assert told is not None
    assert (told.event, told.id, told.url) == (status.value, "j-000003", "https://example.com")


def test_what_only_passes_by_is_not() -> None:
    asked = Event(type=EventType.APPROVAL_REQUESTED, at=NOW)
    assert word(job(JobStatus.RUNNING), asked) is None
    assert word(job(JobStatus.WAITING_FOR_HUMAN), Event(type=EventType.TASK_STARTED, at=NOW)) is None
    assert word(job(JobStatus.FINISHED)) is None


def test_the_end_of_a_child_is_its_parents_business_and_its_trouble_is_not() -> None:
    assert word(job(parent_id="p"), ENDS) is None
    assert word(job(JobStatus.QUARANTINED, parent_id="p"), Event(type=EventType.JOB_QUARANTINED, at=NOW))


def test_neither_input_nor_data_nor_tokens_are_kept_in_it() -> None:
    secret = {"password": "hunter2"}
    told = word(job(input=secret, data=secret, token="hunter2", body_hash="hunter2"), ENDS)
    assert told is not None
    assert "hunter2" not in repr(told)


def test_a_large_result_is_left_out_and_that_is_said() -> None:
    large = "x" * MAX_BYTES
    told = word(job(result=large, error=Fault("c", large), search_attributes={"a": large}), ENDS)
    assert told is not None
    assert (told.omitted, told.job.result) == (("result",), None)
    assert told.job.error is not None
    assert len(told.job.error.message) < 2000


def test_a_result_that_no_store_can_keep_does_not_break_the_turn() -> None:
    told = word(job(result={"n": 2**100}), ENDS)
    assert told is not None
    assert told.omitted == ("result",)


def test_a_job_without_a_webhook_has_no_records_in_its_change() -> None:
    quiet = Step(job=job(webhook_url=None), events=(ENDS,)).change(None, "t")
    loud = Step(job=job(), events=(ENDS,)).change(None, "t")
    assert quiet.records == ()
    assert [write.key for write in loud.records] == ["j-000001"]
