"""The ready queue: jobs whose next handler can run, and the leases of those that somebody runs."""

import math
from collections import deque
from collections.abc import Collection, Iterator

from .base import Version


class ReadyLine:
    """The jobs of one blueprint version, oldest first; with a way out in the middle.

    Each entry names the revision that it was written for. A plain dictionary would do, but taking from
    the front of a long one walks over everything that was taken before.
    """

    __slots__ = ("_order", "_revisions")

    def __init__(self) -> None:
        self._order: deque[str] = deque()
        self._revisions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._revisions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._revisions)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._revisions

    def add(self, job_id: str, revision: int) -> None:
        if job_id not in self._revisions:
            self._order.append(job_id)
        self._revisions[job_id] = revision

    def discard(self, job_id: str) -> None:
        if self._revisions.pop(job_id, None) is not None and len(self._order) > 2 * len(self._revisions) + 64:
            self._order = deque(self._revisions)

    def take(self) -> tuple[str, int] | None:
        """The oldest entry and its revision, or None."""
        while self._order:
            job_id = self._order.popleft()
            revision = self._revisions.pop(job_id, None)
            if revision is not None:
                return job_id, revision
        return None


class ReadyQueue:
    """One line per version."""

    def __init__(self) -> None:
        self._lines: dict[Version, ReadyLine] = {}

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def add(self, version: Version, job_id: str, revision: int) -> None:
        line = self._lines.get(version)
        if line is None:
            line = self._lines[version] = ReadyLine()
        line.add(job_id, revision)

    def discard(self, version: Version, job_id: str) -> None:
        line = self._lines.get(version)
        if line is not None:
            line.discard(job_id)

    def has(self, version: Version, job_id: str) -> bool:
        return job_id in self._lines.get(version, ())

    def take(self, versions: Collection[Version]) -> Iterator[tuple[str, int]]:
        """Entries of these versions, one from each in turn: a crowd of one must not keep another waiting."""
        lines = [line for version in versions if (line := self._lines.get(version))]
        while lines:
            for line in lines:
                if (taken := line.take()) is not None:
                    yield taken
            lines = [line for line in lines if line]

    def others(self, versions: Collection[Version]) -> Iterator[str]:
        """The jobs of all versions but these."""
        return (job_id for version, line in self._lines.items() if version not in versions for job_id in line)


class Leases:
    """Who runs which job, and until when."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, float]] = {}
        #: No lease lapses before then.
        self._next_lapse = math.inf

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._held

    def holder(self, job_id: str) -> str | None:
        held = self._held.get(job_id)
        return held[0] if held is not None else None

    def take(self, job_id: str, instance: str, until: float) -> None:
        """Take or renew."""
        self._held[job_id] = (instance, until)
        self._next_lapse = min(self._next_lapse, until)

    def let_go(self, job_id: str) -> None:
        self._held.pop(job_id, None)

    def lapsed(self, elapsed: float) -> list[str]:
        """End the leases that are over. Looks at all of them, but only when one may have lapsed."""
        if elapsed < self._next_lapse:
            return []
        return self._end([job_id for job_id, (_, until) in self._held.items() if until <= elapsed])

    def relinquished(self, instance: str) -> list[str]:
        """End all leases of one holder."""
        return self._end([job_id for job_id, (holder, _) in self._held.items() if holder == instance])

    def _end(self, job_ids: list[str]) -> list[str]:
        for job_id in job_ids:
            del self._held[job_id]
        self._next_lapse = min((until for _, until in self._held.values()), default=math.inf)
        return job_ids
