"""Lately: how jobs ended that this process has just written. Nobody can have changed that since."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec import Struct

from ...clock import Clock
from .encode import Parcel

#: Seconds for which an end is remembered: whoever waits for it asks at once.
ENDED_S = 2.0
#: Ended jobs, and living ones whose story is ours so far, that are remembered; the oldest make room.
MANY = 512
#: Bytes of a job and its story, at most: what is larger is left to the server.
LARGE = 16 << 10

#: A part of a job's story as the outbox has it: the first seq, and the body.
Row = tuple[int, bytes]

#: The answers to a change that was applied just now, and by nobody before.
_APPLIED = b"aw"


class _Story(Struct):
    """What was told of a job from its first event on, as long as all of it was told by us."""

    line: int
    rows: list[Row]
    #: The seq of the event that comes next.
    next: int
    size: int


class _End(Struct, frozen=True):
    line: int
    until: float
    body: bytes
    #: The whole story; None: somebody else has told a part of it, too.
    rows: list[Row] | None


class Lately:
    """Remembers ends for a moment, so that whoever has waited for one need not ask the server for it.

    An end is final, so it cannot be out of date. All of it is forgotten with the line that it came by: a server that
    has begun anew may have lost it.
    """

    def __init__(self, clock: Clock, line: Callable[[], int], ended_s: float) -> None:
        """`line` numbers the connection that stands now; 0: none does."""
        self._clock = clock
        self._line = line
        self._ended_s = ended_s
        self._stories: OrderedDict[str, _Story] = OrderedDict()
        self._ends: OrderedDict[str, _End] = OrderedDict()

    # -- reading ---------------------------------------------------------------------------------

    def ended(self, job_id: str) -> bytes | None:
        """The job as it ended; None when that is not known here."""
        end = self._find(job_id)
        return None if end is None else end.body

    def story(self, job_id: str) -> list[Row] | None:
        """Everything that was ever told of a job that has ended; None when that is not known here."""
        end = self._find(job_id)
        return None if end is None else end.rows

    def _find(self, job_id: str) -> _End | None:
        end = self._ends.get(job_id)
        if end is None or end.line != self._line() or end.until <= self._clock.elapsed():
            return None
        return end

    # -- writing ---------------------------------------------------------------------------------

    def wrote(self, parcel: Parcel, letters: bytes, firsts: Iterable[int]) -> None:
        """The server has answered for this parcel; `firsts` are the seqs from which on each change has told."""
        line, bodies = self._line(), parcel.bodies
        for change, letter, first in zip(parcel.changes, letters, firsts, strict=True):
            if letter not in _APPLIED:
                continue
            job_id, job, entry = change[0], change[3], change[5]
            if entry:
                self._tell(job_id, line, first, bodies[entry - 1], change[6])
            if job and job[5][-1:] == "e":
                self._end(job_id, line, bodies[job[0] - 1])

    def forget_stories(self) -> None:
        """The outbox was pruned: what has left it is told by history."""
        self._stories.clear()
        self._ends = OrderedDict(
            (job_id, _End(end.line, end.until, end.body, None)) for job_id, end in self._ends.items()
        )

    def _tell(self, job_id: str, line: int, first: int, body: bytes, events: int) -> None:
        if first == 1:
            story = self._stories[job_id] = _Story(line, [], 1, 0)
            if len(self._stories) > MANY:
                self._stories.popitem(last=False)
        else:
            found = self._stories.get(job_id)
            if found is None:
                return
            story = found
        story.size += len(body)
        if (story.line, story.next) != (line, first) or story.size > LARGE:
            del self._stories[job_id]
            return
        story.rows.append((first, body))
        story.next = first + events

    def _end(self, job_id: str, line: int, body: bytes) -> None:
        story = self._stories.pop(job_id, None)
        if len(body) > LARGE:
            return
        rows = None if story is None or story.line != line else story.rows
        self._ends[job_id] = _End(line, self._clock.elapsed() + self._ended_s, body, rows)
        if len(self._ends) > MANY:
            self._ends.popitem(last=False)
