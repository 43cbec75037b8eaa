"""Flushing: the changes that wait together travel together, and are safe to send twice."""

import secrets
from collections.abc import Callable, Sequence
from itertools import count

from ...errors import StorageError, StorageUnavailable
from ...model import Change, Outcome, OutcomeKind
from ...plain import words
from ..base import Hint
from ..codec import UNENCODABLE
from .decode import OUTCOMES, hints_of
from .encode import Parcel
from .scripts import Scripts

#: Changes in one call of the script: enough to share the trip, few enough not to hold up the server.
PARCEL_CHANGES = 64
#: Bytes after which a parcel is full: a server that copies megabytes answers nobody else.
PARCEL_BYTES = 1 << 20


class Answer:
    """Where the outcome of one change will be."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.outcome = outcome

    def get(self) -> Outcome:
        """The outcome, once the batch is flushed."""
        assert self.outcome is not None
        return self.outcome


class Batch:
    """What one flush sends: parcels, and who waits for which part of them."""

    def __init__(self) -> None:
        self._parcels: list[tuple[Parcel, list[Answer]]] = []
        self.hints: list[Hint] = []

    def add(self, change: Change, instance: str) -> Answer:
        """Take the change along. What cannot be encoded is answered here and now."""
        parcel, answers = self._open_parcel()
        try:
            parcel.add(change, instance)
        except UNENCODABLE as error:
            return Answer(Outcome(OutcomeKind.UNSTORABLE, reason=words(error)))
        answer = Answer()
        answers.append(answer)
        return answer

    def _open_parcel(self) -> tuple[Parcel, list[Answer]]:
        if self._parcels:
            parcel, answers = last = self._parcels[-1]
            if len(answers) < PARCEL_CHANGES and parcel.size < PARCEL_BYTES:
                return last
        self._parcels.append((Parcel(), []))
        return self._parcels[-1]

    def parcels(self) -> list[tuple[Parcel, list[Answer]]]:
        """Those that carry something."""
        return [(parcel, answers) for parcel, answers in self._parcels if answers]


class Flusher:
    """Sends batches. Each parcel has a name of its own, by which the server knows a repetition."""

    def __init__(
        self,
        scripts: Scripts,
        origin: str,
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
        calls = [
            (next(self._names), self._origin, *self._limits, parcel.packed(), *parcel.bodies)
            for parcel, _ in parcels
        ]
        try:
            replies = await self._scripts.call_many("commit", calls)
        except StorageError as error:
            # Whatever it was, it concerns this batch only: the server has the others.
            raise StorageUnavailable(str(error)) from error
        for (_, answers), reply in zip(parcels, replies, strict=True):
            letters, _, hints = reply.partition(b"\n")
            for answer, letter in zip(answers, letters, strict=True):
                answer.outcome = OUTCOMES[letter]
            batch.hints += hints_of(hints)

    def flushed(self, batch: Batch) -> None:
        """Tell those in this process what others are told by the server."""
        self._tell(list(dict.fromkeys(batch.hints)))
