"""The ready queue: jobs whose next handler can run, and the leases of those that somebody runs."""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator

from .base import Version


class ReadyQueue:
    """The jobs of each blueprint version, oldest first. An entry names the revision that it was written for."""

    def __init__(self) -> None:
        self._versions: dict[Version, OrderedDict[str, int]] = {}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._versions.values())

    def add(self, version: Version, job_id: str, revision: int) -> None:
        self._versions.setdefault(version, OrderedDict())[job_id] = revision

    def discard(self, version: Version, job_id: str) -> None:
        entries = self._versions.get(version)
        if entries is not None:
            entries.pop(job_id, None)

    def has(self, version: Version, job_id: str) -> bool:
        return job_id in self._versions.get(version, ())

    def take(self, versions: Collection[Version]) -> Iterator[tuple[str, int]]:
        """Take entries of these versions, one from each in turn, so that no version has to wait for another."""
        queues = [entries for version in versions if (entries := self._versions.get(version))]
        while queues:
            for entries in queues:
                if entries:
                    yield entries.popitem(last=False)
            queues = [entries for entries in queues if entries]

    def others(self, versions: Collection[Version]) -> Iterator[str]:
        """The jobs of all versions but these."""
        return (
            job_id
            for version, entries in self._versions.items()
            if version not in versions
            for job_id in entries
        )


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
