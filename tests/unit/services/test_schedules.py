from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from regista.errors import BlueprintNotFound, OperatorsOnly, ScheduleExists, ScheduleNotFound
from regista.schedules.schedule import Schedule
from regista.services.schedules import ScheduleService
from tests.services_kit import ADA, OPS, actions_of, orchestrator
from tests.support import script

QUICK = script(lambda context, actions: actions.transition_to("done"), "done", name="quick")
HOURLY = Schedule(blueprint="quick", interval_seconds=3600)
CALLS: list[Callable[[ScheduleService], Coroutine[Any, Any, object]]] = [
    lambda it: it.list_all(ADA),
    lambda it: it.get(ADA, "s"),
    lambda it: it.next_ticks(ADA, "s", 3),
    lambda it: it.create(ADA, "t", HOURLY),
    lambda it: it.pause(ADA, "s"),
    lambda it: it.resume(ADA, "s"),
    lambda it: it.trigger(ADA, "s"),
    lambda it: it.delete(ADA, "s"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
async def test_schedules_are_for_operators(number: int) -> None:
    async with orchestrator(QUICK) as director:
        schedules = director.services.schedules
        before = await schedules.create(OPS, "s", HOURLY)
        with pytest.raises(OperatorsOnly):
            await CALLS[number](schedules)
        assert [entry.state for entry in await schedules.list_all(OPS)] == [before.state]
        assert await actions_of(director.storage, ADA) == []


async def test_what_an_operator_does_is_recorded() -> None:
    async with orchestrator(QUICK) as director:
        schedules = director.services.schedules
        await schedules.create(OPS, "s", HOURLY)
        assert len(await schedules.next_ticks(OPS, "s", 3)) == 3
        await schedules.pause(OPS, "s", "maintenance")
        await schedules.resume(OPS, "s")
        first = await schedules.trigger(OPS, "s", "key")
        assert await schedules.trigger(OPS, "s", "key") == first
        await schedules.delete(OPS, "s")
        actions = [action for action, _ in await actions_of(director.storage, OPS)]
        assert actions[::-1] == [
            "schedule.create",
            "schedule.pause",
            "schedule.resume",
            "schedule.trigger",
            "schedule.trigger",
            "schedule.delete",
        ]


async def test_what_is_refused_is_not_recorded() -> None:
    async with orchestrator(QUICK) as director:
        schedules = director.services.schedules
        await schedules.create(OPS, "s", HOURLY)
        with pytest.raises(ScheduleExists):
            await schedules.create(OPS, "s", Schedule(blueprint="quick", interval_seconds=60))
        with pytest.raises(BlueprintNotFound):
            await schedules.create(OPS, "t", Schedule(blueprint="absent", interval_seconds=60))
        for call in (schedules.pause, schedules.resume, schedules.trigger, schedules.delete):
            with pytest.raises(ScheduleNotFound):
                await call(OPS, "absent")
        assert await actions_of(director.storage, OPS) == [("schedule.create", "s")]
