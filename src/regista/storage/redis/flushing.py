"""Flushing: the changes that wait together travel together, and are safe to send twice."""

import secrets
from collections.abc import Callable, Sequence
from itertools import count

from ...errors import StorageError, StorageUnavailable
from ...model import Change, CommitOutcome, CommitStatus, RecordWrite
from ...serialization import safe_text
from ..base import Hint
from ..codec import UNENCODABLE
from .decode import decode_answer
from .encode import Parcel
from .scripts import Call, Scripts

#: Changes in one call of a script: enough to share the trip, few enough not to hold up the server.
PARCEL_CHANGES = 64
#: Bytes after which a parcel is full: a server that copies megabytes answers nobody else.
PARCEL_BYTES = 1 << 20


class Answer:
    """Where the outcome of one change will be."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: CommitOutcome | None = None) -> None:
        self.outcome = outcome

    def get(self) -> CommitOutcome:
        """The outcome, once the batch is flushed."""
        assert self.outcome is not None
        return self.outcome


#: A parcel, and who waits for which part of it.
Sent = tuple[Parcel, list[Answer]]


class Batch:
    """What one flush sends: parcels of changes, and of items that are written by themselves."""

    def __init__(self) -> None:
        self._changes: list[Sent] = []
        self._items: list[Sent] = []
        self.hints: list[Hint] = []

    def add(self, change: Change, instance: str) -> Answer:
        """Take the change along. What cannot be encoded is answered here and now."""
        parcel, answers = _open_parcel(self._changes)
        try:
            parcel.add(change, instance)
        except UNENCODABLE as error:
            return Answer(CommitOutcome(CommitStatus.UNSTORABLE, reason=safe_text(error)))
        answer = Answer()
        answers.append(answer)
        return answer

    def put(self, write: RecordWrite) -> Answer:
        """Take along the write of an item, which was checked."""
        parcel, answers = _open_parcel(self._items)
        parcel.put(write)
        answer = Answer()
        answers.append(answer)
        return answer

    def parcels(self) -> list[tuple[str, Parcel, list[Answer]]]:
        """Those that carry something, and the script that takes them."""
        return [
            (script, parcel, answers)
            for script, sent in (("commit", self._changes), ("put", self._items))
            for parcel, answers in sent
            if answers
        ]


def _open_parcel(sent: list[Sent]) -> Sent:
    """The last one, or a new one when that is full."""
    if sent:
        parcel, answers = last = sent[-1]
        if len(answers) < PARCEL_CHANGES and parcel.size < PARCEL_BYTES:
            return last
    sent.append((Parcel(), []))
    return sent[-1]


class Flusher:
    """Sends batches. Each parcel has a name of its own, by which the server knows a repetition."""

    def __init__(
        self,
        scripts: Scripts,
        origin: Callable[[], str],
        ended_ttl_s: float,
        outbox_limit: int,
        tell: Callable[[Sequence[Hint]], None],
    ) -> None:
        self._scripts = scripts
        self._origin = origin
        self._limits = (round(ended_ttl_s * 1000), outbox_limit)
        self._tell = tell
        self._names = map(f"{secrets.token_hex(8)}:{{}}".format, count(1))

    def keep_outbox(self) -> None:
        """Cut nothing off the outbox, however long it gets."""
        self._limits = (self._limits[0], 1 << 52)

    async def flush(self, batch: Batch) -> None:
        """Return when the server has answered for all of it; raise StorageUnavailable when it does not."""
        parcels = batch.parcels()
        if not parcels:
            return
        more: dict[str, tuple[int, ...]] = {"commit": self._limits, "put": ()}
        origin = self._origin()
        try:
            calls: list[Call] = [
                (script, next(self._names), origin, *more[script], parcel.packed(), *parcel.bodies)
                for script, parcel, _ in parcels
            ]
            replies = await self._scripts.call_many(calls)
        except (StorageError, *UNENCODABLE) as error:
            # Whatever it was, it concerns this batch only: the server has the others.
            raise StorageUnavailable(safe_text(error)) from error
        for (_, _, answers), reply in zip(parcels, replies, strict=True):
            outcomes, hints = decode_answer(reply)
            for answer, outcome in zip(answers, outcomes, strict=True):
                answer.outcome = outcome
            batch.hints += hints

    def flushed(self, batch: Batch) -> None:
        """Tell those in this process what others are told by the server."""
        self._tell(list(dict.fromkeys(batch.hints)))
