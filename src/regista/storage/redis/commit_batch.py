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
from .encode import ScriptBatch
from .scripts import Call, Scripts

#: Changes in one call of a script: enough to share the trip, few enough not to hold up the server.
BATCH_CHANGES = 64
#: Bytes after which a script batch is full: a server that copies megabytes answers nobody else.
BATCH_BYTES = 1 << 20
#: More entries than an outbox can have.
_UNLIMITED = 1 << 52


class PendingOutcome:
    """Where the outcome of one change will be."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: CommitOutcome | None = None) -> None:
        self.outcome = outcome

    def get(self) -> CommitOutcome:
        """The outcome, once the batch is flushed."""
        assert self.outcome is not None
        return self.outcome


#: A script batch, and the outcomes of its parts.
Sent = tuple[ScriptBatch, list[PendingOutcome]]


class Batch:
    """What one flush sends: batches of changes, and of records that are written by themselves."""

    def __init__(self) -> None:
        self._changes: list[Sent] = []
        self._records: list[Sent] = []
        self.hints: list[Hint] = []

    def add(self, change: Change, instance: str) -> PendingOutcome:
        """Take the change along. What cannot be encoded is answered here and now."""
        script_batch, answers = _open_batch(self._changes)
        try:
            script_batch.add(change, instance)
        except UNENCODABLE as error:
            return PendingOutcome(CommitOutcome(CommitStatus.UNSTORABLE, reason=safe_text(error)))
        answer = PendingOutcome()
        answers.append(answer)
        return answer

    def put(self, write: RecordWrite) -> PendingOutcome:
        """Take along the write of a record, which was checked."""
        script_batch, answers = _open_batch(self._records)
        script_batch.put(write)
        answer = PendingOutcome()
        answers.append(answer)
        return answer

    def batches(self) -> list[tuple[str, ScriptBatch, list[PendingOutcome]]]:
        """Those that carry something, and the script that takes them."""
        return [
            (script, script_batch, answers)
            for script, sent in (("commit", self._changes), ("put_records", self._records))
            for script_batch, answers in sent
            if answers
        ]


def _open_batch(sent: list[Sent]) -> Sent:
    """The last one, or a new one when that is full."""
    if sent:
        script_batch, answers = last = sent[-1]
        if len(answers) < BATCH_CHANGES and script_batch.size < BATCH_BYTES:
            return last
    sent.append((ScriptBatch(), []))
    return sent[-1]


class Flusher:
    """Sends batches. Each script_batch has a name of its own, by which the server knows a repetition."""

    def __init__(
        self,
        scripts: Scripts,
        origin: Callable[[], str],
        ended_ttl_s: float,
        outbox_limit: int | None,
        tell: Callable[[Sequence[Hint]], None],
    ) -> None:
        self._scripts = scripts
        self._origin = origin
        self._limits = (round(ended_ttl_s * 1000), _UNLIMITED if outbox_limit is None else outbox_limit)
        self._tell = tell
        self._names = map(f"{secrets.token_hex(8)}:{{}}".format, count(1))

    async def flush(self, batch: Batch) -> None:
        """Return when the server has answered for all of it; raise StorageUnavailable when it does not."""
        batches = batch.batches()
        if not batches:
            return
        more: dict[str, tuple[int, ...]] = {"commit": self._limits, "put_records": ()}
        origin = self._origin()
        try:
            calls: list[Call] = [
                (
                    script,
                    next(self._names),
                    origin,
                    *more[script],
                    script_batch.packed(),
                    *script_batch.bodies,
                )
                for script, script_batch, _ in batches
            ]
            replies = await self._scripts.call_many(calls)
        except (StorageError, *UNENCODABLE) as error:
            # Whatever it was, it concerns this batch only: the server has the others.
            raise StorageUnavailable(safe_text(error)) from error
        for (_, _, answers), reply in zip(batches, replies, strict=True):
            outcomes, hints = decode_answer(reply)
            for answer, outcome in zip(answers, outcomes, strict=True):
                answer.outcome = outcome
            batch.hints += hints

    def flushed(self, batch: Batch) -> None:
        """Tell those in this process what others are told by the server."""
        self._tell(list(dict.fromkeys(batch.hints)))
