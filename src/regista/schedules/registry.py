"""ScheduleRegistry: every schedule with what is stored about it, and what people do to one."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock, add_seconds
from ..errors import ScheduleExists, ScheduleInFile, ScheduleInvalid, ScheduleNotFound, StorageError
from ..model import Record, RecordWrite
from ..storage.base import SharedState, find_record
from .calendar import Calendar
from .schedule import NAME, Schedule, check
from .state import (
    KEEP,
    DecisionInput,
    Kind,
    ScheduleRecord,
    ScheduleState,
    decide_ticks,
    decode,
    encode,
    next_fire,
    noted,
)

log = logging.getLogger("regista.scheduler")

SHELF = "schedules"
#: Items that are read in one go.
_PAGE = 100
#: Bytes of a schedule, at most: it is written again with every tick.
MAX_BYTES = 64 * 1024
#: Losing a race this often means that something is wrong, not that somebody was faster.
_MAX_RACES = 100
#: How soon a tick that waits for the end of a job is looked at again.
_BUFFERED_S = 1.0
#: A last tick further in the future than this was decided while a clock was wrong.
AHEAD_S = 5.0


class StoredSchedule(Struct, frozen=True):
    """One schedule, as it was read."""

    name: str
    schedule: Schedule
    calendar: Calendar
    state: ScheduleState
    #: Of the item that holds the state; 0: there is none yet.
    revision: int = 0
    #: The file has it; otherwise somebody made it over the API.
    in_file: bool = False
    #: The state is not what is stored: it is new, or follows from a changed schedule.
    unsaved: bool = False
    #: When somebody should look at it, as it is stored.
    due: datetime | None = None
    #: The stored cursor, where it was in the future and was reset.
    ahead: datetime | None = None


class ScheduleRegistry:
    """Reads and writes schedules. Whoever writes names the revision that he has read: of two, one is told so.

    What a file says about a schedule wins over what is stored under its name.
    """

    def __init__(self, shelves: SharedState, clock: Clock, tz: str, keep: int = KEEP) -> None:
        self._shelves = shelves
        self._clock = clock
        self.tz = tz
        self.keep = keep
        self._file_schedules: Mapping[str, Schedule] = {}
        self._calendars: dict[str, tuple[Schedule, Calendar]] = {}
        #: Schedules that were reported as unreadable, with the revision that was.
        self._unreadable: dict[str, int] = {}

    def use_file(self, schedules: Mapping[str, Schedule]) -> None:
        """From now on these are the schedules of `schedules.toml`; they win over stored ones of the same name."""
        self._file_schedules = schedules

    def now(self) -> datetime:
        """The time of day that decisions are made at."""
        return self._clock.now()

    # -- reading ---------------------------------------------------------------------------------

    async def find(self, name: str) -> StoredSchedule | None:
        """The schedule of that name."""
        if NAME.fullmatch(name) is None:
            return None
        return self._entry(name, await find_record(self._shelves, SHELF, name))

    async def get(self, name: str) -> StoredSchedule:
        """The same, or ScheduleNotFound."""
        found = await self.find(name)
        if found is None:
            raise ScheduleNotFound(name)
        return found

    async def all(self) -> list[StoredSchedule]:
        """Every schedule, by name."""
        items: dict[str, Record | None] = dict.fromkeys(self._file_schedules)
        after = ""
        while page := await self._shelves.records(SHELF, after=after, limit=_PAGE):
            items |= {item.key: item for item in page}
            after = page[-1].key
        found = (self._readable(name, item) for name, item in sorted(items.items()))
        return [entry for entry in found if entry is not None]

    async def due(self, now: datetime, limit: int) -> list[StoredSchedule]:
        """Those that somebody should look at."""
        found = (
            self._readable(item.key, item) for item in await self._shelves.due_records(SHELF, now, limit)
        )
        return [entry for entry in found if entry is not None]

    def _readable(self, name: str, item: Record | None) -> StoredSchedule | None:
        """The entry; None, and an error in the log, where this version cannot read what is stored."""
        try:
            return self._entry(name, item)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ScheduleInvalid) as error:
            revision = 0 if item is None else item.revision
            if self._unreadable.get(name) != revision:
                self._unreadable[name] = revision
                fields = {"action": "schedule_unreadable", "schedule": name}
                log.error("schedule %s cannot be read and does not run: %s", name, error, extra=fields)
            return None

    def _entry(self, name: str, item: Record | None) -> StoredSchedule | None:
        state = stored = None if item is None else decode(item.value)
        schedule = self._file_schedules.get(name) or (None if state is None else state.schedule)
        if schedule is None:
            return None
        calendar, now = self._calendar(name, schedule), self._clock.now()
        fingerprint = schedule.fingerprint(self.tz)
        if state is None:
            state = ScheduleState(cursor=now, fingerprint=fingerprint, created_at=now)
        elif state.fingerprint != fingerprint:
            # Other ticks than before: those that it never had are not missed.
            changed = ScheduleRecord(kind="changed", at=now, message=schedule.words())
            state = replace(
                noted(state, changed, self.keep), cursor=max(now, state.cursor), fingerprint=fingerprint
            )
        ahead = state.cursor if state.cursor > add_seconds(now, AHEAD_S) else None
        if ahead is not None:
            reset = ScheduleRecord(
                kind="changed", at=now, message=f"last tick reset: {ahead.isoformat()} is in the future"
            )
            state = replace(noted(state, reset, self.keep), cursor=now)
        revision = 0 if item is None else item.revision
        unsaved = item is None or state is not stored
        due = None if item is None else item.due
        return StoredSchedule(
            name, schedule, calendar, state, revision, name in self._file_schedules, unsaved, due, ahead
        )

    def _calendar(self, name: str, schedule: Schedule) -> Calendar:
        known = self._calendars.get(name)
        if known is None or known[0] != schedule:
            known = self._calendars[name] = (schedule, check(schedule, self.tz))
        return known[1]

    # -- writing ---------------------------------------------------------------------------------

    async def save(self, entry: StoredSchedule, state: ScheduleState) -> StoredSchedule | None:
        """Write the state, if nobody has written since it was read; None: somebody has."""
        due = self.next_due(replace(entry, state=state))
        write = RecordWrite(SHELF, entry.name, encode(state), due=due, expected=entry.revision)
        (done,) = await self._shelves.put_records([write])
        return (
            replace(entry, state=state, revision=entry.revision + 1, unsaved=False, due=due) if done else None
        )

    def next_due(self, entry: StoredSchedule) -> datetime | None:
        """When somebody should look at it; None: never by itself."""
        state = entry.state
        if state.starting:
            return self._clock.now()
        fires = next_fire(entry.name, entry.schedule, entry.calendar, state.cursor)
        if state.buffered is None:
            return fires
        soon = self._clock.now() + timedelta(seconds=_BUFFERED_S)
        return soon if fires is None else min(soon, fires)

    async def change(self, name: str, how: Callable[[StoredSchedule], ScheduleState]) -> StoredSchedule:
        """Read, change, write; again when somebody else was faster."""
        for _ in range(_MAX_RACES):
            entry = await self.get(name)
            state = how(entry)
            if state == entry.state and not entry.unsaved:
                return entry
            saved = await self.save(entry, state)
            if saved is not None:
                return saved
        raise StorageError(f"schedule {name}: lost {_MAX_RACES} races in a row")

    # -- people ----------------------------------------------------------------------------------

    async def create(self, name: str, schedule: Schedule) -> StoredSchedule:
        """A new schedule. The very same one again is fine; another one under the name is ScheduleExists."""
        if NAME.fullmatch(name) is None:
            raise ScheduleInvalid("name", "letters, digits, '.', '_' and '-', at most 200", name)
        check(schedule, self.tz)
        _check_storable(schedule)
        if name in self._file_schedules:
            raise ScheduleExists(name)
        now = self._clock.now()
        state = ScheduleState(
            cursor=now, created_at=now, schedule=schedule, fingerprint=schedule.fingerprint(self.tz)
        )
        entry = StoredSchedule(name, schedule, self._calendar(name, schedule), state)
        saved = await self.save(entry, state)
        if saved is None:
            saved = await self.get(name)
            if saved.state.schedule != schedule:
                raise ScheduleExists(name)
        return saved

    async def delete(self, name: str) -> None:
        """Forget a schedule, and what is stored about it. Its jobs stay. One that a file names is ScheduleInFile."""
        if name in self._file_schedules:
            raise ScheduleInFile(name)
        if NAME.fullmatch(name) is None:
            raise ScheduleNotFound(name)
        for _ in range(_MAX_RACES):
            item = await find_record(self._shelves, SHELF, name)
            if item is None:
                raise ScheduleNotFound(name)
            (done,) = await self._shelves.put_records(
                [RecordWrite(SHELF, name, None, expected=item.revision)]
            )
            if done:
                self._calendars.pop(name, None)
                return
        raise StorageError(f"schedule {name}: lost {_MAX_RACES} races in a row")

    async def pause(self, name: str, reason: str = "") -> StoredSchedule:
        """Nothing fires until `resume`; ticks are recorded as skipped. Twice is fine."""
        return await self.change(name, lambda entry: self._switched(entry, True, "paused", reason))

    async def resume(self, name: str, reason: str = "") -> StoredSchedule:
        """Ticks fire again, from now on. Twice is fine."""
        return await self.change(name, lambda entry: self._switched(entry, False, "resumed", reason))

    def _switched(self, entry: StoredSchedule, paused: bool, kind: Kind, reason: str) -> ScheduleState:
        state, now = entry.state, self._clock.now()
        if (state.paused if state.paused is not None else entry.schedule.paused) == paused:
            return state
        if not paused:
            # What came while it was paused is skipped for that reason, however soon after it is resumed.
            state = self._caught_up(entry, DecisionInput(now, keep=self.keep))
        record = ScheduleRecord(kind=kind, at=now, message=reason or None)
        return replace(noted(state, record, self.keep), paused=paused)

    def _caught_up(self, entry: StoredSchedule, seen: DecisionInput) -> ScheduleState:
        """Everything that is due is decided, however much that is."""
        state, before = entry.state, None
        while state != before:
            before = state
            state = decide_ticks(entry.name, entry.schedule, entry.calendar, state, seen)
        return state


def _check_storable(schedule: Schedule) -> None:
    """ScheduleInvalid unless it comes back from the store as it was."""
    try:
        body = msgspec.json.encode(schedule)
        same = msgspec.json.decode(body, type=Schedule) == schedule
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ScheduleInvalid(
            "input_data", "data that JSON can carry", "something else", str(error)
        ) from None
    if not same:
        raise ScheduleInvalid("input_data", "data that JSON can carry", "what comes back as something else")
    if len(body) > MAX_BYTES:
        raise ScheduleInvalid("input_data", f"at most {MAX_BYTES} bytes of JSON in all", len(body))
