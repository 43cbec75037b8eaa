"""WorkerFacts: a worker as people see it."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from ..dispatch.connected import Seat
from ..model import Worker


class WorkerFacts(Struct, frozen=True, kw_only=True):
    """Who it is, how it is, and what is in its hands."""

    #: As it registered, with the connection that it has now.
    worker: Worker
    #: ready, busy (no slot is free), draining, disconnected (its stream is closed) or silent (its lease is over).
    state: str
    #: Since when it is disconnected.
    since: datetime | None = None
    #: The attempts in its hands.
    holding: tuple[str, ...] = ()
    #: How many tasks it would take right now.
    free: int = 0
    #: What it could start right now; less than `worker.skills` when it is at a limit of its own.
    available: tuple[str, ...] = ()
    last_seen: datetime | None = None


def facts_elsewhere(worker: Worker, silent: bool, holding: tuple[str, ...]) -> WorkerFacts:
    """What the store tells of a worker that is connected to another instance, or to nobody."""
    state = "silent" if silent else _told(worker, holding)
    free = max(0, worker.capacity - len(holding)) if state == "ready" else 0
    return WorkerFacts(
        worker=worker,
        state=state,
        since=worker.disconnected_at,
        holding=holding,
        free=free,
        available=worker.skills,
    )


def _told(worker: Worker, holding: tuple[str, ...]) -> str:
    if worker.disconnected_at is not None:
        return "disconnected"
    if worker.draining:
        return "draining"
    return "busy" if len(holding) >= worker.capacity else "ready"


def facts_of(worker: Worker, seat: Seat, silent: bool, last_seen: datetime | None) -> WorkerFacts:
    """What there is to tell of a worker that is connected here. `silent`: its lease is over."""
    return WorkerFacts(
        worker=replace(worker, transport=seat.worker.transport, lease_s=seat.worker.lease_s),
        state="silent" if silent else _state(seat),
        since=seat.disconnected_at,
        holding=tuple(seat.holding),
        free=seat.free,
        available=seat.worker.skills,
        last_seen=last_seen,
    )


def _state(seat: Seat) -> str:
    if seat.disconnected_at is not None:
        return "disconnected"
    if seat.draining:
        return "draining"
    return "busy" if len(seat.holding) >= seat.worker.capacity else "ready"
