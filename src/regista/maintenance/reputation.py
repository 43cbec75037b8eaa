"""ReputationCalculator: how far a worker can be relied on, from what history tells of its attempts."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..errors import HistoryDisabled, HistoryUnavailable
from ..history.base import HistoryStorage
from ..model import Event, EventType, FailureKind, OutboxEntry, Record, RecordWrite
from ..storage.base import StorageBackend, find_record
from ..workers.service import WorkerService
from .chore import ChoreResult

#: One item for each worker: its `Standing`.
SHELF = "reputations"
#: How far history was read: on a shelf of its own, since a worker may have any name.
CURSOR_SHELF, CURSOR_KEY = "upkeep", "reputation"
#: Seconds after which an attempt weighs half as much.
HALF_LIFE_S = 86_400.0
#: A new worker counts as if it had done so many attempts well: one failure does not ruin it.
TRUST = 5.0
#: Reputations are told in these steps: workers whose reputation is a little different stay in one class.
STEP = 0.05
#: Entries of history that are read in one go, and in one run at most: of more, only the newest count.
PAGE, MOST = 1000, 20_000
#: A worker that nobody has heard of for so long is forgotten: by then it weighs next to nothing.
KEEP_S = 30 * 86_400.0

_BAD = frozenset(
    {EventType.TASK_FAILED, EventType.TASK_LOST, EventType.TASK_UNDELIVERED, EventType.TASK_TIMED_OUT}
)


class Standing(Struct, frozen=True, array_like=True):
    """What a worker did well and badly: attempts, each weighing less as it ages."""

    at: datetime
    good: float = 0.0
    bad: float = 0.0

    def aged(self, now: datetime) -> "Standing":
        """The same attempts as they weigh later."""
        passed_s = max(0.0, (now - self.at).total_seconds())
        weight = 0.5 ** (passed_s / HALF_LIFE_S)
        return Standing(max(now, self.at), self.good * weight, self.bad * weight)

    def plus(self, good: float, bad: float) -> "Standing":
        return replace(self, good=self.good + good, bad=self.bad + bad)

    @property
    def reputation(self) -> float:
        """0 to 1, in steps. Without any attempts it is 1."""
        share = (self.good + TRUST) / (self.good + self.bad + TRUST)
        return round(round(share / STEP) * STEP, 2)


def weigh(event: Event, now: datetime) -> tuple[float, float] | None:
    """How much an event counts for and against its worker; None when it does neither.

    Nobody is blamed for a wrong input, and nobody for a task that was called off.
    """
    if event.worker_id is None or event.status == "cancelled":
        return None
    weight = 0.5 ** (max(0.0, (now - event.at).total_seconds()) / HALF_LIFE_S)
    if event.type is EventType.TASK_FINISHED:
        return weight, 0.0
    if event.type not in _BAD or FailureKind.of(event.code) is FailureKind.INVALID_INPUT:
        return None
    return 0.0, weight


def tally(events: Iterable[Event], now: datetime) -> dict[str, tuple[float, float]]:
    """Worker → what counts for and against it."""
    found: dict[str, tuple[float, float]] = {}
    for event in events:
        counts = weigh(event, now)
        if counts is not None and event.worker_id is not None:
            good, bad = found.get(event.worker_id, (0.0, 0.0))
            found[event.worker_id] = (good + counts[0], bad + counts[1])
    return found


class ReputationCalculator:
    """Reads what history has new, and writes what it means into the workers' records.

    A stretch of history belongs to whoever moves the cursor over it, and that is fenced: of two who run at once one counts
    it. A crash in between loses some counts and doubles none. Bad marks fade by themselves, so that a worker which gets nothing
    to do because of them gets another chance.
    """

    name = "reputation"
    needs_leader = True

    def __init__(
        self,
        storage: StorageBackend,
        history: HistoryStorage,
        set_reputation: Callable[[str, float], Awaitable[bool]],
        interval_s: float = 60.0,
    ) -> None:
        self.interval_s = interval_s
        self._storage = storage
        self._history = history
        #: `WorkerService.set_reputation`.
        self._set_reputation = set_reputation
        self._not_before: datetime | None = None
        #: Up to here there was nothing to count, or it was counted.
        self._looked_upto = 0

    async def run_once(self, now: datetime) -> ChoreResult:
        """Count what is new; `done` is how many workers are worth more or less than before.

        Throttled by itself: more often than each interval, or sooner than one after the start, it does nothing.
        """
        if not self._may(now):
            return ChoreResult()
        try:
            counted = await self._read(now)
        except (HistoryDisabled, HistoryUnavailable):  # either says so itself
            return ChoreResult()
        for worker_id, (good, bad) in counted.items():
            await self._count(worker_id, good, bad, now)
        return ChoreResult(done=await self._tell(counted, now))

    def _may(self, now: datetime) -> bool:
        first, due = self._not_before is None, self._not_before is not None and now >= self._not_before
        if first or due:
            self._not_before = now + timedelta(seconds=self.interval_s)
        return due or self.interval_s == 0

    async def of(self, worker_id: str, now: datetime) -> float | None:
        """The reputation of a worker that comes back; None: nothing is known."""
        item = await find_record(self._storage, SHELF, worker_id)
        return None if item is None else _standing(item).aged(now).reputation

    async def _read(self, now: datetime) -> dict[str, tuple[float, float]]:
        item = await find_record(self._storage, CURSOR_SHELF, CURSOR_KEY)
        newest = await self._history.cursor()
        stored = 0 if item is None else int(item.value)
        cursor, events = max(min(max(stored, self._looked_upto), newest), newest - MOST), list[Event]()
        while cursor < newest:
            entries, cursor = await self._page(cursor, newest)
            told = (event for entry in entries for event in entry.events)
            events += (event for event in told if event.worker_id is not None)
        self._looked_upto = cursor
        counted = tally(events, now)
        if not counted:
            return {}  # whoever reads it again finds nothing, either: not worth a write
        revision = 0 if item is None else item.revision
        write = RecordWrite(CURSOR_SHELF, CURSOR_KEY, str(cursor).encode(), expected=revision)
        (mine,) = await self._storage.put_records([write])
        return counted if mine else {}

    async def _page(self, cursor: int, newest: int) -> tuple[list[OutboxEntry], int]:
        """The next entries, and how far they go. Where no history is kept, the outbox is all that there is."""
        stretch = await self._history.entries(cursor, PAGE)
        if stretch.upto > cursor:
            return stretch.entries, stretch.upto
        left = [
            entry for entry in (await self._storage.outbox(cursor, PAGE)).entries if entry.number <= newest
        ]
        return left, left[-1].number if len(left) == PAGE else newest

    async def _count(self, worker_id: str, good: float, bad: float, now: datetime) -> None:
        item = await find_record(self._storage, SHELF, worker_id)
        standing = Standing(now) if item is None else _standing(item).aged(now)
        value = msgspec.json.encode(standing.plus(good, bad))
        revision = 0 if item is None else item.revision
        await self._storage.put_records(
            [RecordWrite(SHELF, worker_id, value, expected=revision, ttl_s=KEEP_S)]
        )

    async def _tell(self, counted: Iterable[str], now: datetime) -> int:
        """Write new reputations into records: of whom something was counted, and of whoever was not perfect."""
        changed, moved = 0, set(counted)
        for worker in await self._storage.workers():
            if worker.id not in moved and worker.profile.reputation >= 1.0:
                continue
            known = await self.of(worker.id, now)
            if known is not None and known != worker.profile.reputation:
                changed += await self._set_reputation(worker.id, known)
        return changed


def _standing(item: Record) -> Standing:
    return msgspec.json.decode(item.value, type=Standing)


def build_reputation(
    storage: StorageBackend, history: HistoryStorage, workers: WorkerService, clock: Clock
) -> ReputationCalculator:
    """The calculator of an orchestrator; workers that register get what they earned before."""
    calculator = ReputationCalculator(storage, history, workers.set_reputation)
    workers.reputation_of = lambda worker_id: calculator.of(worker_id, clock.now())
    return calculator
