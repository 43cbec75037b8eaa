"""Indexed: what was lately said of a job's attributes, so that it need not be said with every entry."""

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from ..clock import EPOCH
from ..model import JobSummary
from .query.index import keys_of, stored, text_index

#: Jobs that are remembered: those whose entries come close together.
REMEMBERED = 10_000


class Said(NamedTuple):
    """What is kept beside a job, by its attributes."""

    given: dict[str, Any]
    created_at: datetime
    attributes: dict[str, Any]
    words: str
    #: What leads to the job; empty where it was written before.
    keys: tuple[tuple[str, str], ...]


_PLAIN = Said({}, EPOCH, {}, "", ())


class Indexed:
    """Remembers what was written. What is forgotten is written again, which changes nothing."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Said] = OrderedDict()

    def say(self, row: JobSummary) -> Said:
        """What to write for this row."""
        given = row.search_attributes
        if not given:
            return _PLAIN
        known = self._known.get(row.job_id)
        if known is not None and known.given == given and known.created_at == row.created_at:
            return known._replace(keys=())
        attributes = stored(given)
        return Said(given, row.created_at, attributes, text_index(attributes), tuple(keys_of(attributes)))

    def written(self, said: Iterable[tuple[str, Said]]) -> None:
        """These are in the database now."""
        for job_id, each in said:
            if each.keys:
                self._known[job_id] = each
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, job_ids: Iterable[str]) -> None:
        """These are not in it any more."""
        for job_id in job_ids:
            self._known.pop(job_id, None)
