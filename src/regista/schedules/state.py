"""What is stored about a schedule, and what time makes of it. Pure: old state + now → new state.

A tick is *decided* in the write that moves `cursor` past it: from then on it is in `starting`, `buffered` or among the
skipped, and nobody decides it again. What is in `starting` is carried out afterwards, and may be carried out twice: the
job's id follows from the schedule and the tick (FENCES 19), so twice is once.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import add_seconds
from .calendar import MANY, Calendar, moment
from .schedule import CatchUp, Overlap, Schedule

#: Seconds by which a tick may be late and still fires where nothing is caught up with: a restart is no outage.
HARDLY_LATE_S = 60.0
#: Records that are kept of each schedule.
KEEP = 50
#: Ticks that are started in one go.
AT_ONCE = 100
#: Jobs that are remembered because they may still run.
_REMEMBERED = 100

Kind = Literal["started", "skipped", "triggered", "paused", "resumed", "changed"]


class ScheduleRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of what became of a schedule's ticks. Ticks that were skipped in a row for one reason share a line."""

    kind: Kind
    at: datetime
    tick: datetime | None = None
    #: The last one, where several were skipped.
    last: datetime | None = None
    count: int = 1
    job_id: str | None = None
    #: missed, outside_window, superseded, overlap, replaced, paused, or why the job was refused.
    reason: str | None = None
    message: str | None = None


class PendingStart(Struct, frozen=True, omit_defaults=True):
    """A job that shall be started. Without a tick it is a person's wish, and `key` tells it from others."""

    tick: datetime | None = None
    key: str = ""


class ScheduleState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is stored about one schedule."""

    #: Every tick up to here is decided.
    cursor: datetime
    #: What ticks were counted by.
    fingerprint: str = ""
    #: The schedule itself, where no file has it.
    schedule: Schedule | None = None
    created_at: datetime | None = None
    #: None: as the schedule says.
    paused: bool | None = None
    starting: tuple[PendingStart, ...] = ()
    #: A tick that waits for the end of the job before it.
    buffered: datetime | None = None
    #: Jobs that may still run.
    running: tuple[str, ...] = ()
    records: tuple[ScheduleRecord, ...] = ()
    fired: int = 0
    skipped: int = 0
    last_tick: datetime | None = None
    last_job_id: str | None = None


class DecisionInput(Struct, frozen=True):
    """What a decision needs to know about the world."""

    now: datetime
    #: A job of this schedule still runs.
    busy: bool = False
    #: Why no job could be started here; empty: nothing is known against it.
    obstacle: str = ""
    keep: int = KEEP


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(ScheduleState).decode


def is_paused(schedule: Schedule, state: ScheduleState | None) -> bool:
    """Nothing fires: by a person's word, else by the schedule's own."""
    return schedule.paused if state is None or state.paused is None else state.paused


def tick_key(name: str, start: PendingStart) -> str:
    """The idempotency key of a start. That of a tick begins with its time, so that ids of jobs sort by it."""
    told = f"{name}\n{start.tick.isoformat() if start.tick is not None else 'trigger'}\n{start.key}"
    digest = blake2b(told.encode(), digest_size=16).hexdigest()
    if start.tick is None:
        return f"trigger-{digest}"
    stamp = f"{int(start.tick.timestamp() * 1000):012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{digest[:3]}-8{digest[3:6]}-{digest[6:18]}"


def fires_at(name: str, tick: datetime, schedule: Schedule, calendar: Calendar) -> datetime:
    """The tick with its jitter: by chance, and the same for everybody. Never later than the next tick."""
    if not schedule.jitter_seconds:
        return tick
    following = calendar.next(tick)
    gap_s = (following - tick).total_seconds() if following is not None else schedule.jitter_seconds
    digest = blake2b(f"{name}\n{tick.isoformat()}".encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") / 2**64
    return add_seconds(tick, share * min(schedule.jitter_seconds, gap_s))


def next_fire(name: str, schedule: Schedule, calendar: Calendar, after: datetime) -> datetime | None:
    """When the first tick after this moment fires."""
    tick = calendar.next(after)
    return None if tick is None else fires_at(name, tick, schedule, calendar)


def decide_ticks(
    name: str, schedule: Schedule, calendar: Calendar, state: ScheduleState, seen: DecisionInput
) -> ScheduleState:
    """Everything that is due is decided; what shall be started is in `starting`."""
    ticks = _due(name, schedule, calendar, state.cursor, seen.now)
    if is_paused(schedule, state):
        return _all_skipped(state, ticks, "paused", seen)
    if seen.obstacle and (ticks or state.buffered is not None):
        return _all_skipped(state, ticks, "refused", seen)
    state = _release(state, seen)
    if not ticks:
        return state
    old, rest, reason = _too_old(schedule, ticks, seen.now)
    state = skip(state, old, reason, seen)
    if schedule.catch_up is not CatchUp.ALL:
        state, rest = skip(state, rest[:-1], "superseded", seen), rest[-1:]
    for tick in rest[:AT_ONCE]:
        state = _fire(schedule, state, moment(tick), seen)
    return state


def _due(name: str, schedule: Schedule, calendar: Calendar, cursor: datetime, now: datetime) -> Sequence[int]:
    """The ticks that fire by now and that nobody has decided; where they are very many, the first of them."""
    ticks = calendar.between(cursor, now, MANY)
    if ticks and fires_at(name, moment(ticks[-1]), schedule, calendar) > now:
        return ticks[:-1]
    return ticks


def _all_skipped(
    state: ScheduleState, ticks: Sequence[int], reason: str, seen: DecisionInput
) -> ScheduleState:
    if state.buffered is not None:
        state = replace(_noted(state, state.buffered, state.buffered, 1, reason, seen), buffered=None)
    return skip(state, ticks, reason, seen)


def _too_old(
    schedule: Schedule, ticks: Sequence[int], now: datetime
) -> tuple[Sequence[int], Sequence[int], str]:
    """Those that nobody wants any more, the others, and why."""
    none = schedule.catch_up is CatchUp.NONE
    window_s = HARDLY_LATE_S if none else schedule.catch_up_window_seconds
    # Jitter is no lateness.
    edge = int(now.timestamp() - window_s - schedule.jitter_seconds)
    place = bisect_left(ticks, edge)
    return ticks[:place], ticks[place:], "missed" if none else "outside_window"


def _fire(schedule: Schedule, state: ScheduleState, tick: datetime, seen: DecisionInput) -> ScheduleState:
    busy = seen.busy or bool(state.starting) or state.buffered is not None
    if schedule.overlap is Overlap.ALLOW or not busy:
        return replace(state, cursor=tick, starting=(*state.starting, PendingStart(tick)))
    if schedule.overlap is Overlap.SKIP:
        return replace(_noted(state, tick, tick, 1, "overlap", seen), cursor=tick)
    if state.buffered is None:
        return replace(state, cursor=tick, buffered=tick)
    if schedule.overlap is Overlap.BUFFER_ONE:
        return replace(_noted(state, tick, tick, 1, "overlap", seen), cursor=tick)
    state = _noted(state, state.buffered, state.buffered, 1, "replaced", seen)
    return replace(state, cursor=tick, buffered=tick)


def _release(state: ScheduleState, seen: DecisionInput) -> ScheduleState:
    """What waited for the end of an earlier job goes on when there is none any more."""
    if state.buffered is None or seen.busy or state.starting:
        return state
    return replace(state, buffered=None, starting=(PendingStart(state.buffered),))


def skip(state: ScheduleState, ticks: Sequence[int], reason: str, seen: DecisionInput) -> ScheduleState:
    """These ticks will never fire, and here is why."""
    if not ticks:
        return state
    first, last = moment(ticks[0]), moment(ticks[-1])
    return replace(_noted(state, first, last, len(ticks), reason, seen), cursor=last)


def _noted(
    state: ScheduleState, first: datetime, last: datetime, count: int, reason: str, seen: DecisionInput
) -> ScheduleState:
    """The ticks are among the skipped; those of one reason in a row share a record."""
    message = seen.obstacle if reason == "refused" else None
    state = replace(state, skipped=state.skipped + count)
    before = state.records[-1] if state.records else None
    alike = (
        before is not None
        and before.kind == "skipped"
        and (before.reason, before.message) == (reason, message)
    )
    # A record speaks for all ticks from its first to its last: it may grow only where none was decided in between.
    if before is not None and alike and before.last == state.cursor < first:
        joined = replace(before, at=seen.now, last=last, count=before.count + count)
        return replace(state, records=(*state.records[:-1], joined))
    record = ScheduleRecord(
        kind="skipped", at=seen.now, tick=first, last=last, count=count, reason=reason, message=message
    )
    return noted(state, record, seen.keep)


def noted(state: ScheduleState, record: ScheduleRecord, keep: int = KEEP) -> ScheduleState:
    """The state with one more line; the oldest makes room."""
    return replace(state, records=(*state.records, record)[-keep:])


def started(state: ScheduleState, start: PendingStart, job_id: str, seen: DecisionInput) -> ScheduleState:
    """The job is there. Whoever comes second with the same news changes nothing.

    A tick that somebody took for refused, while somebody else was about to start it, has fired after all.
    """
    if any(record.job_id == job_id for record in state.records):
        return _done(state, start)
    state = _done(_pardoned(state, start), start)
    kind: Kind = "started" if start.tick is not None else "triggered"
    state = noted(state, ScheduleRecord(kind=kind, at=seen.now, tick=start.tick, job_id=job_id), seen.keep)
    return replace(
        state,
        fired=state.fired + 1,
        last_tick=start.tick or state.last_tick,
        last_job_id=job_id,
        running=(*state.running, job_id)[-_REMEMBERED:],
    )


def refused(
    state: ScheduleState, start: PendingStart, code: str, message: str, seen: DecisionInput
) -> ScheduleState:
    """The job could not be started, and will not be."""
    if start not in state.starting:
        return state
    record = ScheduleRecord(
        kind="skipped", at=seen.now, tick=start.tick, last=start.tick, reason=code, message=message
    )
    state = noted(_done(state, start), record, seen.keep)
    return replace(state, skipped=state.skipped + 1)


def _done(state: ScheduleState, start: PendingStart) -> ScheduleState:
    return replace(state, starting=tuple(one for one in state.starting if one != start))


def _pardoned(state: ScheduleState, start: PendingStart) -> ScheduleState:
    """Without the record that says that this very start was refused."""
    if start in state.starting or start.tick is None:
        return state
    left = tuple(
        record
        for record in state.records
        if not (record.kind == "skipped" and record.tick == record.last == start.tick)
    )
    return replace(state, records=left, skipped=state.skipped - len(state.records) + len(left))
