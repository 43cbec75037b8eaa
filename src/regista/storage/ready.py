"""ReadyLine: the jobs of one blueprint version whose next handler can run, oldest first."""

from collections import deque
from collections.abc import Iterator


class ReadyLine:
    """A line with a way out in the middle.

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
        """The oldest entry, or None."""
        while self._order:
            job_id = self._order.popleft()
            revision = self._revisions.pop(job_id, None)
            if revision is not None:
                return job_id, revision
        return None
