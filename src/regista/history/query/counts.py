"""Tally: how many jobs fit a search, by group, and how long those that have ended took."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ...model import JobSummary
from .evaluate import matches, value_of
from .nodes import DURATION, Field, Kind, Query

#: What groups are told apart by; None: the jobs without a value.
GroupValue = str | int | float | bool | None


class Member(NamedTuple):
    """One job of a tally: its group, and how many microseconds it took, if it has ended."""

    group: GroupValue
    took_us: int | None


class Durations(Struct, frozen=True):
    """How long the ended jobs of a group took, in seconds; each is one that really happened, but for the mean."""

    mean: float
    p50: float
    p95: float


class Group(Struct, frozen=True):
    """The jobs that share a value; `duration` is None where none of them has ended."""

    value: GroupValue
    count: int
    duration: Durations | None


class JobCounts(Struct, frozen=True):
    """All that fit, and the largest groups of them."""

    count: int
    duration: Durations | None
    groups: list[Group]


def members_of(query: Query, by: Field | None, rows: Iterable[JobSummary]) -> list[Member]:
    """The members that these rows are, where they fit."""
    return [
        Member(None if by is None else value_of(by, row), value_of(DURATION, row))
        for row in rows
        if matches(query.where, row)
    ]


def counts_of(members: Sequence[Member], limit: int, *, grouped: bool = True) -> JobCounts:
    """The tally of these; the reference for what SQL computes."""
    groups: dict[GroupValue, list[Member]] = defaultdict(list)
    for member in members if grouped else ():
        groups[member.group].append(member)
    found = [Group(value, len(some), _durations(some)) for value, some in groups.items()]
    return JobCounts(len(members), _durations(members), largest(found)[:limit])


def largest(groups: Iterable[Group]) -> list[Group]:
    """The largest first; where they are equal, by their value, and those without one last."""
    return sorted(
        groups,
        key=lambda group: (
            -group.count,
            group.value is None,
            group.value if isinstance(group.value, int | float) else 0,
            str(group.value),
        ),
    )


def _durations(members: Sequence[Member]) -> Durations | None:
    took = sorted(member.took_us for member in members if member.took_us is not None)
    if not took:
        return None
    return durations(len(took), sum(took), took[rank(len(took), 50)], took[rank(len(took), 95)])


def rank(count: int, percent: int) -> int:
    """The place, from 0, of the smallest value that so many percent do not exceed."""
    return (count * percent + 99) // 100 - 1


def durations(ended: int, total_us: int, p50_us: int, p95_us: int) -> Durations:
    """From microseconds to seconds."""
    return Durations(total_us / ended / 1e6, p50_us / 1e6, p95_us / 1e6)


class GroupRow(Struct, array_like=True):
    """A row of the query `tally`: a group, or all jobs that fit; lengths of time in microseconds."""

    total: bool | int
    value: GroupValue
    jobs: int
    ended: int
    took: int | None
    p50: int | None
    p95: int | None

    def durations(self) -> Durations | None:
        """None where nobody has ended."""
        if self.took is None or self.p50 is None or self.p95 is None:
            return None
        return durations(self.ended, self.took, self.p50, self.p95)


def counts_from(rows: Iterable[GroupRow], by: Field | None) -> JobCounts:
    """The tally that a database has counted."""
    count, total, groups = 0, None, []
    for row in rows:
        if row.total:
            count, total = row.jobs, row.durations()
        elif by is not None:
            value = bool(row.value) if by.kind is Kind.BOOL and row.value is not None else row.value
            groups.append(Group(value, row.jobs, row.durations()))
    return JobCounts(count, total, largest(groups))


#: Kinds of fields that jobs can be grouped by.
GROUPED = frozenset({Kind.KEYWORD, Kind.NUMBER, Kind.BOOL, Kind.DATETIME})
