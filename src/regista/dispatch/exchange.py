"""Exchange: tells the other instances of our free slots, and learns of theirs. Only where a store is shared."""

import asyncio
import logging

from msgspec.structs import replace

from ..errors import StorageAway
from ..fleet.seats import Seats
from ..model import Slots, Worker
from ..storage.base import SlotBoard
from .elsewhere import Elsewhere

log = logging.getLogger("regista.dispatch")

#: Changes of so many seconds are told in one word: a busy house changes with every task.
_EVERY_S = 0.05
#: Our word counts for so long; the rescuer repeats it every two seconds. A frozen instance is chosen in vain until then.
_TTL_S = 4.0


class Exchange:
    """Pushes when something has changed, and pulls when somebody else has pushed."""

    def __init__(self, board: SlotBoard, seats: Seats, elsewhere: Elsewhere, instance: str) -> None:
        self._board = board
        self._seats = seats
        self._elsewhere = elsewhere
        self._instance = instance
        self._told: list[Slots] | None = None
        self._news = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._open = False

    def start(self) -> None:
        """Begin. Whoever never starts costs nothing."""
        self._open = True
        self._seats.changed = self._soon
        self._news = True
        self._soon()

    async def stop(self) -> None:
        """Tell nobody anything more. Twice is fine, and so is before `start`."""
        self._open = False
        self._seats.changed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)

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
        except StorageAway:
            pass  # it says so itself; the rescuer repeats us
        except Exception:
            log.exception(
                "telling of free slots failed; the next turn tries again", extra={"action": "slots"}
            )
        finally:
            self._turn = None

    async def _tell(self) -> None:
        slots = [_nameless(kind.slots()) for kind in self._seats.open]
        if slots != self._told:
            await self._board.show_slots(self._instance, slots, _TTL_S)
            self._told = slots

    async def _learn(self) -> None:
        if self._news:
            self._news = False
            known = await self._board.slots()
            self._elsewhere.learn({name: slots for name, slots in known.items() if name != self._instance})


def _nameless(slots: Slots) -> Slots:
    """Who exactly stands for the class is nobody's business, and would make the same word look like another."""
    worker: Worker = replace(
        slots.worker,
        id="",
        hostname="",
        address="",
        incarnation="",
        session=0,
        notes=0,
        cut_at=None,
        registered_at=None,
        instance="",
        schemas={},
    )
    return replace(slots, worker=worker)
