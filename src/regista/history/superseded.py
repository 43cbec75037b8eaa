"""Story: which of a job's entries count, when one was told anew.

Numbers only grow, and with them a job's seqs. Where an entry has a higher number and no higher seq than one that is
there, the store has told the story anew: it lost its last moments, or forgot the job and was given its key again. From
that seq on the newer word is the only one, in whatever order they arrive.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from ..model import Event, JobSummary, OutboxEntry


def supersedes(newer: OutboxEntry, older: OutboxEntry) -> bool:
    """The older one is not a part of the story any more."""
    return newer.number > older.number and newer.first_seq <= older.first_seq


def without_superseded(entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
    """Those with events that no other of them replaces, in the order of their numbers."""
    told = sorted([entry for entry in entries if entry.events], key=attrgetter("number"))
    seqs: dict[str, int] = {}
    for entry in told:
        if seqs.get(entry.job_id, 0) >= entry.first_seq:
            return _last_told(told)
        seqs[entry.job_id] = entry.first_seq
    return told  # as nearly always


def _last_told(told: list[OutboxEntry]) -> list[OutboxEntry]:
    kept: dict[str, list[OutboxEntry]] = {}
    dropped: set[int] = set()
    for entry in told:
        line = kept.setdefault(entry.job_id, [])
        while line and supersedes(entry, line[-1]):
            dropped.add(id(line.pop()))
        line.append(entry)
    return [entry for entry in told if id(entry) not in dropped]


def latest(entries: Sequence[OutboxEntry]) -> dict[str, tuple[int, JobSummary]]:
    """The newest summary of each job, and the number that it came with."""
    found: dict[str, tuple[int, JobSummary]] = {}
    for entry in entries:
        summary = entry.summary
        if summary is not None:
            rival = found.get(entry.job_id)
            if rival is None or rival[0] < entry.number:
                found[entry.job_id] = (entry.number, summary)
    return found


def to_events(entries: Iterable[OutboxEntry]) -> list[Event]:
    """The events of one job's entries, in order; each entry ends where the next one begins."""
    found: list[Event] = []
    for entry in sorted(entries, key=lambda entry: entry.first_seq):
        while found and found[-1].seq >= entry.first_seq:
            found.pop()
        found += entry.numbered()
    return found
