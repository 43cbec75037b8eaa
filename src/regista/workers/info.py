"""WorkerInfo: a worker as people see it."""

import asyncio
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from ..dispatch.connected import ConnectedWorker, worker_state
from ..dispatch.dispatcher import Dispatcher
from ..model import Worker
from ..storage.base import StorageBackend, find_worker
from .attempts import HeldTasks


class WorkerInfo(Struct, frozen=True, kw_only=True):
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


def stored_worker_info(worker: Worker, silent: bool, holding: tuple[str, ...]) -> WorkerInfo:
    """What the store tells of a worker that is connected to another instance, or to nobody."""
    draining = worker.draining
    state = "silent" if silent else worker_state(worker, worker.disconnected_at, draining, len(holding))
    free = max(0, worker.capacity - len(holding)) if state == "ready" else 0
    return WorkerInfo(
        worker=worker,
        state=state,
        since=worker.disconnected_at,
        holding=holding,
        free=free,
        available=worker.skills,
    )


def connected_worker_info(worker: Worker, connected: ConnectedWorker, silent: bool) -> WorkerInfo:
    """What there is to tell of a worker that is connected here. `silent`: its lease is over."""
    return WorkerInfo(
        worker=replace(worker, transport=connected.worker.transport, lease_s=connected.worker.lease_s),
        state="silent" if silent else connected.state,
        since=connected.disconnected_at,
        holding=tuple(connected.attempts),
        free=connected.free,
        available=connected.worker.skills,
        last_seen=connected.last_seen,
    )


async def describe_workers(
    storage: StorageBackend, tasks: HeldTasks, dispatcher: Dispatcher, instance: str
) -> list[WorkerInfo]:
    """All registered workers, in the order of their ids, as this instance sees them."""
    silent = {worker.id for worker in await storage.workers(lapsed_only=True)}
    workers = await storage.workers()
    # Concurrent questions share round trips to the store.
    found = (_describe(tasks, dispatcher, instance, worker, worker.id in silent) for worker in workers)
    return await asyncio.gather(*found)


async def describe_worker(
    storage: StorageBackend, tasks: HeldTasks, dispatcher: Dispatcher, instance: str, worker_id: str
) -> WorkerInfo | None:
    """One worker; None if it is not registered."""
    worker = await find_worker(storage, worker_id)
    if worker is None:
        return None
    silent = any(lapsed.id == worker_id for lapsed in await storage.workers(lapsed_only=True))
    return await _describe(tasks, dispatcher, instance, worker, silent)


async def _describe(
    tasks: HeldTasks, dispatcher: Dispatcher, instance: str, worker: Worker, silent: bool
) -> WorkerInfo:
    connected = dispatcher.find(worker.id)
    if connected is not None and _is_here(connected, worker, instance):
        return connected_worker_info(worker, connected, silent)
    held = await tasks.held_by(worker.id)
    return stored_worker_info(worker, silent, tuple(task.attempt_id for task in held))


def _is_here(connected: ConnectedWorker, worker: Worker, instance: str) -> bool:
    """It is connected where its record says. A worker that polls may be connected to several instances."""
    here = worker.instance == instance or connected.worker.transport == "poll"
    return here and connected.worker.session == worker.session
