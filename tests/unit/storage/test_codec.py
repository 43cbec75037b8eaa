"""Records to bytes and back."""

from datetime import UTC, datetime

import pytest

from regista.model import Event, EventType, JobSummary, OutboxEntry
from regista.storage.codec import decode_entry, encode

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUMMARY = JobSummary(
    job_id="job-1",
    blueprint="one",
    version="1",
    client="",
    status="pending",
    state="start",
    created_at=NOON,
    updated_at=NOON,
)


@pytest.mark.parametrize("summary", [None, SUMMARY])
def test_an_entry_is_read_as_it_was_written(summary: JobSummary | None) -> None:
    events = (Event(type=EventType.JOB_CREATED, at=NOON, detail={"n": [1, "ä", None]}),)
    entry = OutboxEntry(7, "job-1", 3, events, summary)

    assert decode_entry(encode(entry)) == entry
