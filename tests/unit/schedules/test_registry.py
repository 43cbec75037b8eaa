"""The ScheduleRegistry: what is stored about schedules, and what people do to one."""

from typing import Any

import pytest
from msgspec.structs import replace

from regista.errors import ScheduleExists, ScheduleInFile, ScheduleInvalid, ScheduleNotFound
from regista.schedules.registry import SHELF
from regista.schedules.schedule import CatchUp, Schedule
from regista.storage.base import find_record
from tests.schedule_kit import create, entry_of, every, kit_of, run_once, told


def test_of_two_who_have_read_the_same_only_one_decides() -> None:
    with kit_of() as kit:
        read = create(kit, every())
        book = kit.director.scheduler.registry
        one, other = replace(read.state, paused=True), replace(read.state, paused=False)

        assert kit.call(lambda: book.save(read, one)) is not None
        assert kit.call(lambda: book.save(read, other)) is None
        assert entry_of(kit).state == one


def test_pausing_skips_and_resuming_goes_on() -> None:
    with kit_of() as kit:
        create(kit, every())
        book = kit.director.scheduler.registry
        kit.call(lambda: book.pause("s", "holidays"))
        kit.skip(150)
        assert kit.jobs() == []
        kit.call(lambda: book.resume("s"))
        kit.skip(60)

        assert told(kit) == [("paused", None), ("skipped", "paused"), ("resumed", None), ("started", None)]
        assert entry_of(kit).state.records[1].count == 2
        assert entry_of(kit).state.records[0].message == "holidays"


def test_pausing_twice_is_one_pause() -> None:
    with kit_of() as kit:
        create(kit, every())
        book = kit.director.scheduler.registry
        for _ in range(2):
            kit.call(lambda: book.pause("s"))

        assert told(kit) == [("paused", None)]


def test_the_very_same_schedule_may_be_made_twice_and_another_one_not() -> None:
    with kit_of() as kit:
        create(kit, every())
        create(kit, every())
        with pytest.raises(ScheduleExists):
            create(kit, every(61))
        with pytest.raises(ScheduleInvalid):
            create(kit, every(), "not a name")


@pytest.mark.parametrize("data", [{"b": b"x"}, {"t": (1, 2)}, {"o": object()}, {"big": "x" * 70_000}])
def test_what_would_not_come_back_from_the_store_is_refused(data: dict[str, Any]) -> None:
    with kit_of() as kit, pytest.raises(ScheduleInvalid, match="input_data"):
        create(kit, every(input_data=data))


def test_a_deleted_schedule_is_gone_and_fires_no_more() -> None:
    with kit_of() as kit:
        create(kit, every())
        book = kit.director.scheduler.registry
        kit.call(lambda: book.delete("s"))
        kit.skip(300)

        assert kit.jobs() == []
        with pytest.raises(ScheduleNotFound):
            kit.call(lambda: book.delete("s"))
        with pytest.raises(ScheduleNotFound):
            kit.call(lambda: book.pause("s"))


def test_what_stands_in_the_file_cannot_be_deleted_or_made_again_but_paused() -> None:
    with kit_of() as kit:
        book = kit.director.scheduler.registry
        book.use_file({"f": every()})
        with pytest.raises(ScheduleInFile):
            kit.call(lambda: book.delete("f"))
        with pytest.raises(ScheduleExists):
            create(kit, every(), "f")
        kit.call(lambda: book.pause("f"))
        kit.skip(120)

        assert entry_of(kit, "f").in_file
        assert kit.jobs() == []


def test_a_changed_calendar_misses_no_ticks_that_it_never_had() -> None:
    with kit_of() as kit:
        scheduler = kit.director.scheduler
        scheduler.take_over({"f": Schedule(blueprint="quick", monthly_dates=[1], time="00:00")})
        run_once(kit)
        kit.skip(7200)
        scheduler.take_over({"f": every(60, catch_up=CatchUp.ALL)})
        run_once(kit)
        kit.skip(61)

        assert [kind for kind, _ in told(kit, "f")] == ["changed", "started"]


def test_a_state_that_nobody_has_a_schedule_for_any_more_is_left_alone() -> None:
    with kit_of() as kit:
        book = kit.director.scheduler.registry
        kit.director.scheduler.take_over({"f": every()})
        kit.skip(60)
        kit.director.scheduler.take_over({})
        kit.skip(300)

        assert len(kit.jobs()) == 1
        assert kit.call(book.all) == []
        assert kit.call(lambda: find_record(kit.director.storage, SHELF, "f")) is not None


def test_a_schedule_of_the_file_begins_when_it_is_first_seen() -> None:
    with kit_of() as kit:
        kit.director.scheduler.take_over({"f": every(3600)})
        run_once(kit)
        kit.skip(3600)

        assert len(kit.jobs()) == 1
