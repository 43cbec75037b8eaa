"""Entries on their way to history."""

from datetime import UTC, datetime

import msgspec
import pytest

from regista.model import Event, EventType, OutboxEntry

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def entry(**detail: object) -> OutboxEntry:
    return OutboxEntry(1, "job-1", 1, (Event(type=EventType.JOB_CREATED, at=NOON, detail=detail),))


def test_the_events_of_an_entry_are_packed_once() -> None:
    told = entry(n=1)

    body = told.packed()

    assert msgspec.msgpack.decode(body, type=tuple[Event, ...]) == told.events
    assert told.packed() is body


def test_an_entry_is_the_same_whether_or_not_it_was_packed() -> None:
    packed, fresh = entry(n=1), entry(n=1)

    packed.packed()

    assert packed == fresh
    assert msgspec.msgpack.encode(packed) == msgspec.msgpack.encode(fresh)
    assert msgspec.structs.replace(packed, number=2) == msgspec.structs.replace(fresh, number=2)


def test_what_cannot_be_packed_is_refused_each_time() -> None:
    told = entry(odd=object())

    for _ in range(2):
        with pytest.raises(TypeError):
            told.packed()
