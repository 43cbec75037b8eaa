"""Scheduler: starts jobs when their time has come, each tick once, on however many instances it runs."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from ..clock import Clock
from ..config import Config
from ..config.schedules_file import ScheduleFile
from ..errors import (
    ConfigError,
    IdempotencyConflict,
    JobAlreadyTerminal,
    JobNotFound,
    OrchestratorStopped,
    RegistaError,
    ScheduleNotFound,
    StorageOutcomeUnknown,
)
from ..maintenance.chore import ChoreResult
from ..model import Job
from ..storage.base import StorageBackend
from .registry import ScheduleRegistry, StoredSchedule
from .schedule import Overlap, Schedule
from .state import DecisionInput, PendingStart, ScheduleState, decide_ticks, refused, started, tick_key

log = logging.getLogger("regista.scheduler")

#: Everything is looked at this often, due or not: a file may say something new about a schedule.
_LOOK_S = 60.0
#: What is due so soon is known of in time, whoever wrote it: more than the pause between two looks.
_AHEAD_S = 6.0
#: Schedules that are looked at in one go.
_LIMIT = 500
#: One that failed in an unexpected way is left alone for so long.
_AFTER_FAILURE_S = 5.0


class Jobs(Protocol):
    """What a scheduler asks of an engine."""

    async def get(self, job_id: str) -> Job: ...
    async def cancel(self, job_id: str, reason: str = "") -> Job: ...


#: `OrchestratorEngine.create_background_job`.
StartJob = Callable[..., Awaitable[str]]


class Scheduler:
    """Decides ticks, writes that down, and only then starts jobs.

    The write that decides is fenced by the revision of what was read, so of two schedulers one decides each tick. What
    was decided is started by whoever comes along, since the job's id follows from schedule and tick: a kill between the
    decision and the start, or between the start and its record, repeats nothing and loses nothing.
    """

    name = "scheduler"
    #: Two are correct; one saves work.
    needs_leader = True

    def __init__(
        self,
        book: ScheduleRegistry,
        start: StartJob,
        jobs: Jobs,
        knows: Callable[[str], bool],
        interval_s: float = 2.0,
    ) -> None:
        self.interval_s = interval_s
        self.registry = book
        self._start = start
        self._jobs = jobs
        self._knows = knows
        self._looked_at: datetime | None = None
        #: When each is worth another look, as far as we know.
        self._due: dict[str, datetime | None] = {}

    async def run_once(self, now: datetime) -> ChoreResult:
        """Decide what is due and start it."""
        fired = 0
        for entry in await self._entries(now):
            try:
                fired += await self._turn(entry, now)
            except (StorageOutcomeUnknown, OrchestratorStopped):
                raise
            except ScheduleNotFound:  # somebody deleted it meanwhile
                self._due.pop(entry.name, None)
            except Exception:  # one schedule must not keep the others from their ticks
                self._due[entry.name] = now + timedelta(seconds=_AFTER_FAILURE_S)
                told = {"action": "schedule_failed", "schedule": entry.name}
                log.exception("schedule %s failed; it is tried again", entry.name, extra=told)
        nearest = min((due for due in self._due.values() if due is not None), default=None)
        run_again_in_s = None if nearest is None else max(0.0, (nearest - now).total_seconds())
        return ChoreResult(done=fired, run_again_in_s=run_again_in_s)

    def take_over(self, schedules: Mapping[str, Schedule]) -> None:
        """From now on these are the schedules of the file."""
        self.registry.use_file(schedules)
        self._looked_at = None

    async def trigger(self, name: str, key: str) -> str:
        """Start a job of this schedule now, whatever its ticks say; returns its id. The same key is the same job."""
        entry = await self.registry.get(name)
        start = PendingStart(key=key)
        job_id = await self._submit(entry, start)
        await self.registry.change(name, lambda now: started(now.state, start, job_id, self._seen(now)))
        return job_id

    async def _entries(self, now: datetime) -> Sequence[StoredSchedule]:
        looked = self._looked_at
        if looked is not None and looked <= now < looked + timedelta(seconds=_LOOK_S):
            # What was due by our notes and is not in the store any more is nobody's business.
            self._due = {name: due for name, due in self._due.items() if due is not None and due > now}
            soon = await self.registry.due(now + timedelta(seconds=_AHEAD_S), _LIMIT)
            self._due |= {entry.name: entry.due for entry in soon}
            return [entry for entry in soon if entry.due is not None and entry.due <= now]
        entries = await self.registry.all()
        self._looked_at = now
        self._due = {entry.name: None for entry in entries}
        return entries

    async def _turn(self, entry: StoredSchedule, now: datetime) -> int:
        """Returns how many ticks have fired."""
        fired = entry.state.fired
        alive = await self._alive(entry)
        seen = replace(self._seen(entry), now=now, busy=bool(alive))
        before = replace(entry.state, running=alive)
        state = decide_ticks(entry.name, entry.schedule, entry.calendar, before, seen)
        if state != before or entry.unsaved:
            saved = await self.registry.save(entry, state)
            if (
                saved is None
            ):  # somebody else was faster; what he decided counts, and is seen at the next look
                self._due[entry.name] = now
                return 0
            if entry.ahead is not None:
                fields = {"action": "schedule_reset", "schedule": entry.name}
                log.warning(
                    "schedule %s: its last tick %s was in the future and is reset",
                    entry.name,
                    entry.ahead,
                    extra=fields,
                )
            entry = saved
        if state.buffered is not None and entry.schedule.overlap is Overlap.CANCEL_PREVIOUS:
            await self._cancel(entry.name, alive)
        if state.starting:
            entry = await self._carry_out(entry)
        self._due[entry.name] = self.registry.next_due(entry)
        return max(0, entry.state.fired - fired)

    def _seen(self, entry: StoredSchedule) -> DecisionInput:
        blueprint = entry.schedule.blueprint
        obstacle = "" if self._knows(blueprint) else f"no blueprint named {blueprint!r} is registered"
        return DecisionInput(self.registry.now(), obstacle=obstacle, keep=self.registry.keep)

    async def _alive(self, entry: StoredSchedule) -> tuple[str, ...]:
        """The jobs that still run; where that does not matter nobody asks. A quarantined one has stopped."""
        if entry.schedule.overlap is Overlap.ALLOW:
            return ()
        alive = []
        for job_id in entry.state.running:
            try:
                if not (await self._jobs.get(job_id)).status.settled:
                    alive.append(job_id)
            except JobNotFound:
                continue
        return tuple(alive)

    async def _cancel(self, name: str, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            try:
                await self._jobs.cancel(job_id, f"schedule {name} starts its next job")
            except (JobNotFound, JobAlreadyTerminal):
                continue  # it has stopped by itself

    async def _carry_out(self, entry: StoredSchedule) -> StoredSchedule:
        """Start what was decided, then write that down; whoever else does so finds the same jobs."""
        seen = self._seen(entry)
        done = [await self._outcome(entry, start, seen) for start in entry.state.starting]
        return await self.registry.change(entry.name, lambda now: _apply(now.state, done))

    async def _outcome(
        self, entry: StoredSchedule, start: PendingStart, seen: DecisionInput
    ) -> Callable[[ScheduleState], ScheduleState]:
        try:
            job_id = await self._submit(entry, start)
        except (StorageOutcomeUnknown, OrchestratorStopped):
            raise
        except RegistaError as error:
            code, words = error.code, str(error)
            told = {"action": "schedule_refused", "schedule": entry.name, "code": code}
            log.warning("schedule %s: its job was refused: %s", entry.name, words, extra=told)
            return lambda state: refused(state, start, code, words, seen)
        return lambda state: started(state, start, job_id, seen)

    async def _submit(self, entry: StoredSchedule, start: PendingStart) -> str:
        schedule = entry.schedule
        try:
            return await self._start(
                schedule.blueprint,
                schedule.input_data,
                schedule.client,
                idempotency_key=tick_key(entry.name, start),
                priority=schedule.priority,
                dispatch_timeout_s=schedule.dispatch_timeout,
                result_timeout_s=schedule.result_timeout,
                search_attributes=schedule.search_attributes,
            )
        except IdempotencyConflict as conflict:
            return conflict.job_id  # started before the schedule was edited: a tick has one job all the same


def _apply(state: ScheduleState, done: Sequence[Callable[[ScheduleState], ScheduleState]]) -> ScheduleState:
    for step in done:
        state = step(state)
    return state


def build_scheduler(
    config: Config,
    storage: StorageBackend,
    clock: Clock,
    start: StartJob,
    jobs: Jobs,
    knows: Callable[[str], bool],
) -> Scheduler:
    """The scheduler of an orchestrator; `knows` says whether a blueprint is registered. `read_file` reads its file."""
    return Scheduler(ScheduleRegistry(storage, clock, config.tz), start, jobs, knows)


def read_file(scheduler: Scheduler, config: Config, blueprints: Collection[str]) -> None:
    """Take over what SCHEDULES_CONFIG_PATH names. ConfigError, with the line, where it cannot be followed."""
    if not config.schedules_config_path:
        return
    file = ScheduleFile(config.schedules_config_path, config.tz)
    file.require(blueprints)
    scheduler.take_over(file.schedules)


def reread_file(scheduler: Scheduler, config: Config, blueprints: Collection[str]) -> bool:
    """The same while we run. False, and all stays as it was, when there is a mistake in it."""
    try:
        read_file(scheduler, config, blueprints)
    except ConfigError as error:
        log.error("schedules stay as they were: %s", error, extra={"action": "schedules_reload"})
        return False
    if config.schedules_config_path:
        log.info("read the schedules anew", extra={"action": "schedules_reload"})
    return True
