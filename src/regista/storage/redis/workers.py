"""Who is there, and who has room: the part of the store that knows workers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec.structs import replace

from ...clock import Clock
from ...model import FreeSlots, Worker
from ..base import Hint, HintKind
from ..codec import encode, readable
from .crier import Crier
from .decode import slots_of, worker_of
from .encode import length
from .scripts import Scripts


class RedisWorkers(ABC):
    """`WorkerStore` and `SlotBoard`, for `RedisStorage`, which opens and closes what is used here."""

    _clock: Clock
    _crier: Crier
    _scripts: Scripts

    @abstractmethod
    def _tell(self, hints: Sequence[Hint]) -> None:
        """Pass hints on to whoever listens in this process."""

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        known = replace(worker, session=0, record_version=0, registered_at=self._clock.now())
        said = (self._crier.origin, worker.id, encode(known), length(lease_s))
        session = await self._scripts.call("register", *said)
        self._tell([Hint(HintKind.WORKER, worker.id)])
        return replace(known, session=session)

    async def heartbeat(self, worker_id: str, session: int, lease_s: float) -> bool:
        return bool(await self._scripts.call("heartbeat", worker_id, session, length(lease_s)))

    async def note(self, worker: Worker) -> Worker | None:
        body = encode(replace(worker, session=0, record_version=0))
        said = (self._crier.origin, worker.id, worker.session, worker.record_version, body)
        if not await self._scripts.call("note", *said):
            return None
        self._tell([Hint(HintKind.WORKER, worker.id)])
        return replace(worker, record_version=worker.record_version + 1)

    async def worker(self, worker_id: str) -> Worker | None:
        row = await self._scripts.call("worker", worker_id)
        return worker_of(row) if row else None

    async def workers(self) -> list[Worker]:
        rows = await self._scripts.call("workers")
        return sorted(readable(worker_of, rows), key=lambda worker: worker.id)

    async def lapsed(self) -> list[Worker]:
        return readable(worker_of, await self._scripts.call("lapsed"))

    async def forget(self, worker_id: str, session: int, *, lapsed: bool = False) -> bool:
        gone = await self._scripts.call("forget", self._crier.origin, worker_id, session, int(lapsed))
        if gone:
            self._tell([Hint(HintKind.WORKER, worker_id)])
        return bool(gone)

    # -- slots -----------------------------------------------------------------------------------

    async def show_slots(self, instance: str, slots: Sequence[FreeSlots], ttl_s: float) -> None:
        await self._scripts.call(
            "show_slots", self._crier.origin, instance, length(ttl_s), encode(list(slots))
        )
        self._tell([Hint(HintKind.SLOTS, instance)])

    async def slots(self) -> dict[str, list[FreeSlots]]:
        return slots_of(await self._scripts.call("slots"))
