import logging

import pytest

from regista.engines.native.announcements import INSTANCES, InstanceAnnouncer
from regista.model import RecordWrite
from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import START, V1, V2


def announcer(storage: MemoryStorage, clock: Clock, instance: str = "me") -> InstanceAnnouncer:
    return InstanceAnnouncer(storage, instance, 30.0, clock)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "action", "") for record in caplog.records if record.levelno >= logging.WARNING]


async def test_versions_of_all_instances_are_known() -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    mine, other = announcer(storage, clock), announcer(storage, clock, "you")
    await mine.announce([V1])
    await other.announce([V2])
    assert sorted(await mine.known_versions()) == [V1, V2]
    await other.announce([])
    assert await mine.known_versions() == [V1]


async def test_an_instance_that_stops_announcing_its_versions_expires() -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    mine = announcer(storage, clock)
    await mine.announce([V1])
    clock.move(20)
    await mine.announce([V1])
    clock.move(20)
    assert await mine.known_versions() == [V1]
    clock.move(11)
    assert await mine.known_versions() == []


async def test_an_unchanged_announcement_is_not_written_again_at_once() -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    mine = announcer(storage, clock)
    for _ in range(3):
        await mine.announce([V1])
    (record,) = await storage.records(INSTANCES)
    assert record.revision == 1


async def test_a_store_that_was_emptied_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    mine = announcer(storage, clock)
    await mine.announce([V1])
    await storage.put_records([RecordWrite(INSTANCES, "me", None)])
    for _ in range(3):
        clock.move(11)
        await mine.announce([V1])
    assert warnings(caplog) == ["storage_emptied"]


async def test_two_orchestrators_under_one_name_are_reported_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    one, two, other = announcer(storage, clock), announcer(storage, clock), announcer(storage, clock, "you")
    for _ in range(3):
        for each in (one, two, other):
            await each.announce([V1])
        clock.move(11)
    assert warnings(caplog) == ["instance_id_shared"] * 2


async def test_the_successor_of_a_killed_process_is_not_a_rival(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    await announcer(storage, clock).announce([V1])
    successor = announcer(storage, clock)
    for _ in range(3):
        await successor.announce([V1])
        clock.move(11)
    assert warnings(caplog) == []


async def test_a_record_that_ended_during_a_long_silence_is_not_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(START)
    storage = MemoryStorage(clock)
    mine = announcer(storage, clock)
    await mine.announce([V1])
    clock.move(2 * 86_400)
    await mine.announce([V1])
    assert warnings(caplog) == []
