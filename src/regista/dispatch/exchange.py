"""Exchange: tells the other instances of our free slots, and learns of theirs. Only where a store is shared."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ..errors import StorageOutcomeUnknown
from ..model import FreeSlots, RecordWrite, Worker, queue_key_text
from ..storage.base import Hint, HintKind, StorageBackend
from .connected import ConnectedWorkers
from .elsewhere import Elsewhere

log = logging.getLogger("regista.dispatch")

#: Changes of so many seconds are told in one word: a busy house changes with every task.
_EVERY_S = 0.05
#: Our word counts for so long; the recovery chore repeats it every two seconds. A frozen instance is chosen in vain until then.
_TTL_S = 4.0
#: The collection with a record for each instance, and how many instances are read.
SLOTS, _INSTANCES = "slots", 10_000
_encode_slots = msgspec.msgpack.Encoder().encode
_decode_slots = msgspec.msgpack.Decoder(list[FreeSlots]).decode
#: So long a task waits for the one instance that was woken for it. After that whoever has a slot may take it.
PATIENCE_S = 0.25


class Exchange:
    """Pushes when something has changed, and pulls when somebody else has pushed."""

    def __init__(
        self, store: StorageBackend, seats: ConnectedWorkers, elsewhere: Elsewhere, instance: str
    ) -> None:
        self._store = store
        self._seats = seats
        self._elsewhere = elsewhere
        self._instance = instance
        self._told: list[FreeSlots] | None = None
        self._news = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        #: Broadcasts that are under way. A slow store may hold one while the next begins.
        self._broadcasts: dict[asyncio.Task[None], None] = {}
        self._open = False
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin. Whoever never starts costs nothing."""
        self._open = True
        self._unsubscribe = [self._seats.subscribe(self._soon), self._elsewhere.subscribe(self._be_patient)]
        self._news = True
        self._soon()

    async def stop(self) -> None:
        """Tell nobody anything more. Twice is fine, and so is before `start`."""
        self._open = False
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()
        self._timer = self._patience = None
        running = [*self._broadcasts] if self._turn is None else [self._turn, *self._broadcasts]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def hear(self) -> None:
        """Somebody else has told of its slots."""
        self._news = True
        self._soon()

    def repeat(self) -> None:
        """Say it again, and look again: words may be lost, and are forgotten after a while."""
        if self._open:
            self._told = None
            self.hear()

    def _soon(self) -> None:
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_task(self._run(), name="slots")
        else:
            self._soon()

    async def _run(self) -> None:
        try:
            await self._tell()
            await self._learn()
        except StorageOutcomeUnknown:
            pass  # it says so itself; the recovery chore repeats us
        except Exception:
            log.exception(
                "telling of free slots failed; the next turn tries again", extra={"action": "slots"}
            )
        finally:
            self._turn = None

    def _be_patient(self) -> None:
        """A task was left to another instance. Should that be frozen, nobody else would know of the task."""
        if self._patience is None and self._open:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._call_all)

    def _call_all(self) -> None:
        self._patience = None
        left, self._elsewhere.left = self._elsewhere.left, {}
        hints = [Hint(HintKind.TASK, queue_key_text(queue_key)) for queue_key in left]
        task = asyncio.get_running_loop().create_task(self._call(hints), name="left-tasks")
        self._broadcasts[task] = None
        task.add_done_callback(lambda done: self._broadcasts.pop(done, None))

    async def _call(self, hints: list[Hint]) -> None:
        try:
            await self._store.publish(hints)
        except StorageOutcomeUnknown:
            pass  # when it is back, everybody looks at all lanes
        except Exception:
            log.exception(
                "telling of waiting tasks failed; all look again every two seconds", extra={"action": "slots"}
            )

    async def _tell(self) -> None:
        slots = [_nameless(kind.slots()) for kind in self._seats.open]
        if slots != self._told:
            write = RecordWrite(SLOTS, self._instance, _encode_slots(slots), ttl_s=_TTL_S)
            await self._store.put_records([write])
            await self._store.publish([Hint(HintKind.SLOTS, self._instance)])
            self._told = slots

    async def _learn(self) -> None:
        if self._news:
            self._news = False
            known = await self._store.records(SLOTS, limit=_INSTANCES)
            self._elsewhere.learn(
                {record.key: _decode_slots(record.value) for record in known if record.key != self._instance}
            )


def _nameless(slots: FreeSlots) -> FreeSlots:
    """Who exactly stands for the class is nobody's business, and would make the same word look like another."""
    worker: Worker = replace(
        slots.worker,
        id="",
        hostname="",
        address="",
        incarnation="",
        session=0,
        record_version=0,
        disconnected_at=None,
        registered_at=None,
        instance="",
        schemas={},
    )
    return replace(slots, worker=worker)
