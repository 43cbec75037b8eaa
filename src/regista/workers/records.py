"""WorkerRecords: the stored records of workers. They are written by compare-and-set: two instances may write one at once."""

from collections.abc import Callable

from msgspec.structs import replace

from ..model import Worker
from ..storage.base import Heartbeat, StorageBackend, find_worker

#: What a record keeps when the same process registers again: the rest is what the worker says of itself.
_OF_SESSION = (
    "session",
    "record_version",
    "registered_at",
    "instance",
    "transport",
    "lease_s",
    "disconnected_at",
    "draining",
)


class WorkerRecords:
    """Reads and rewrites worker records for one instance."""

    def __init__(self, storage: StorageBackend, instance: str) -> None:
        self._storage = storage
        self._instance = instance

    async def find(self, worker_id: str) -> Worker | None:
        """What the store knows of a worker."""
        return await find_worker(self._storage, worker_id)

    async def rewrite(
        self, worker_id: str, session: int | None, change: Callable[[Worker], Worker]
    ) -> Worker | None:
        """The record, changed; None when the worker is not registered, or not under this session.

        Where another instance writes it at the same moment, it is read again, and changed as it is by then.
        """
        while True:
            stored = await find_worker(self._storage, worker_id)
            if stored is None or session not in (None, stored.session):
                return None
            wanted = change(stored)
            written = stored if wanted == stored else await self._storage.update_worker(wanted)
            if written is not None:
                return written

    async def renew(self, worker_id: str, session: int, lease_s: float) -> Worker | None:
        """The record with its lease renewed; None when this session is over."""
        if not (await self._storage.heartbeat([Heartbeat(worker_id, session, lease_s)]))[0]:
            return None
        return await find_worker(self._storage, worker_id)

    async def keep_session(self, worker: Worker, lease_s: float) -> Worker | None:
        """The live session of the process that registers, with what it says now; None: it needs a new session."""

        def renewed(stored: Worker) -> Worker:
            return replace(worker, **{name: getattr(stored, name) for name in _OF_SESSION})

        stored = await find_worker(self._storage, worker.id) if worker.incarnation else None
        if stored is None or stored.incarnation != worker.incarnation:
            return None
        if not (await self._storage.heartbeat([Heartbeat(worker.id, stored.session, lease_s)]))[0]:
            return None
        return await self.rewrite(worker.id, stored.session, renewed)

    async def is_other_process(self, worker: Worker) -> bool:
        """Another process registered under this id before. Workers that do not name their process count as the same one."""
        stored = await find_worker(self._storage, worker.id)
        if stored is None or not stored.incarnation or not worker.incarnation:
            return False
        return stored.incarnation != worker.incarnation

    async def move_here(self, worker: Worker, transport: str, lease_s: float | None) -> Worker | None:
        """Write where and how the worker is connected: the instance that had it before lets go of it."""
        here = {
            "instance": self._instance,
            "transport": transport,
            "lease_s": lease_s,
            "disconnected_at": None,
        }
        return await self.rewrite(worker.id, worker.session, lambda stored: replace(stored, **here))

    def streams_elsewhere(self, worker: Worker) -> bool:
        """By its record, the worker has a stream to another instance."""
        connected = worker.transport == "stream" and worker.disconnected_at is None
        return connected and worker.instance != self._instance

    async def set_draining(self, worker_id: str, on: bool) -> bool:
        """An operator wants it to get no more tasks. False when it is not registered."""
        return await self.rewrite(worker_id, None, lambda worker: replace(worker, draining=on)) is not None

    async def set_reputation(self, worker_id: str, reputation: float) -> bool:
        """False when the worker is not registered."""
        changed = await self.rewrite(worker_id, None, lambda worker: with_reputation(worker, reputation))
        return changed is not None


def with_reputation(worker: Worker, reputation: float) -> Worker:
    """The worker with this reputation."""
    return replace(worker, profile=replace(worker.profile, reputation=reputation))
