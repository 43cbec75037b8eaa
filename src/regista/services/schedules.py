"""Schedules, for operators: list, create, pause, resume, trigger and delete them."""

from collections.abc import Callable
from datetime import datetime
from secrets import token_urlsafe
from typing import Any, Protocol

from msgspec import Struct

from ..schedules.calendar import upcoming
from ..schedules.registry import ScheduleRegistry, StoredSchedule
from ..schedules.schedule import Schedule
from ..schedules.state import fires_at
from .audit import AuditService
from .caller import Caller


class Tick(Struct, frozen=True):
    """A future tick: its time by the calendar, and when it fires with its jitter."""

    tick: datetime
    fires_at: datetime


class Trigger(Protocol):
    """Starts jobs of schedules; the scheduler is one."""

    async def trigger(self, name: str, key: str) -> str:
        """Start a job of this schedule now; returns its id. The same key is the same job."""
        ...


class Blueprints(Protocol):
    """Knows which blueprints are registered."""

    def get(self, name: str) -> Any:
        """The blueprint, or BlueprintNotFound."""
        ...


class ScheduleService:
    """Reads and changes schedules. Every method requires an operator."""

    def __init__(
        self,
        book: ScheduleRegistry,
        scheduler: Trigger,
        blueprints: Blueprints,
        audit: AuditService,
        wake_scheduler: Callable[[], None],
    ) -> None:
        self._book = book
        self._scheduler = scheduler
        self._blueprints = blueprints
        self._audit = audit
        self._wake_scheduler = wake_scheduler

    async def list_all(self, caller: Caller) -> list[StoredSchedule]:
        """All schedules, those of `schedules.toml` and those of the API, by name."""
        self._authorize(caller)
        return await self._book.all()

    async def get(self, caller: Caller, name: str) -> StoredSchedule:
        """One schedule, or ScheduleNotFound."""
        self._authorize(caller)
        return await self._book.get(name)

    async def next_ticks(self, caller: Caller, name: str, count: int) -> list[Tick]:
        """The next ticks, as if the schedule were not paused."""
        entry = await self.get(caller, name)
        return [
            Tick(tick, fires_at(name, tick, entry.schedule, entry.calendar))
            for tick in upcoming(entry.calendar, entry.state.cursor, count)
        ]

    async def create(self, caller: Caller, name: str, schedule: Schedule) -> StoredSchedule:
        """A new schedule; the first tick is the next one from now. An equal one under that name is returned as it is.

        Raises BlueprintNotFound, ScheduleInvalid, or ScheduleExists if the name has another schedule.
        """
        self._authorize(caller)
        self._blueprints.get(schedule.blueprint)
        work = self._book.create(name, schedule)
        entry = await self._audit.perform(caller, "schedule.create", name, work)
        self._wake_scheduler()
        return entry

    async def pause(self, caller: Caller, name: str, reason: str = "") -> StoredSchedule:
        """No ticks fire until `resume`; they are recorded as skipped. Pausing twice is fine."""
        self._authorize(caller)
        return await self._audit.perform(caller, "schedule.pause", name, self._book.pause(name, reason))

    async def resume(self, caller: Caller, name: str, reason: str = "") -> StoredSchedule:
        """Ticks fire again, from now on. Resuming twice is fine."""
        self._authorize(caller)
        entry = await self._audit.perform(caller, "schedule.resume", name, self._book.resume(name, reason))
        self._wake_scheduler()
        return entry

    async def trigger(self, caller: Caller, name: str, key: str | None = None) -> str:
        """Start a job of the schedule now and return its id. The same key is the same job."""
        self._authorize(caller)
        work = self._scheduler.trigger(name, key or token_urlsafe())
        return await self._audit.perform(
            caller, "schedule.trigger", name, work, lambda job_id: {"job_id": job_id}
        )

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a schedule of the API; its jobs stay. Raises ScheduleInFile for one of `schedules.toml`."""
        self._authorize(caller)
        await self._audit.perform(caller, "schedule.delete", name, self._book.delete(name))

    def _authorize(self, caller: Caller) -> None:
        caller.require_operator("see and change schedules")
