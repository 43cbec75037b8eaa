"""Records to bytes and back."""

from datetime import UTC, datetime

import pytest

from regista.model import Event, EventType, JobSummary, OutboxEntry
from regista.storage.codec import decode_entry, encode, encode_entry

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
def test_an_entry_whose_events_are_packed_has_the_bytes_of_the_record(summary: JobSummary | None) -> None:
    events = (Event(type=EventType.JOB_CREATED, at=NOON, detail={"n": [1, "ä", None]}),)
    entry = OutboxEntry(7, "job-1", 3, events, summary)

    body = encode_entry(entry)

    assert body == encode(entry)
    assert decode_entry(body) == entry
