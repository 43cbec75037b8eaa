"""Chore: something that must be done again and again, and what a run of it did."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct


class ChoreResult(Struct, frozen=True):
    """What a run of a chore did."""

    done: int = 0
    #: Run again after so many seconds, if that is before the chore's interval is over.
    run_again_in_s: float | None = None


class ChoreStatus(Struct, frozen=True, kw_only=True):
    """How a chore has fared at this instance, since its start."""

    name: str
    interval_s: float
    needs_leader: bool
    #: This instance is the one that does it; None: nobody leads, or nobody has asked yet.
    leading: bool | None = None
    runs: int = 0
    failures: int = 0
    #: What all runs did, and what the last one did.
    done: int = 0
    last_done: int = 0
    last_run_at: datetime | None = None
    last_duration_s: float | None = None
    #: The last failure; a later success does not make it unsaid.
    last_error: str | None = None
    last_error_at: datetime | None = None


class Chore(Protocol):
    """Something that must be done again and again.

    Correct when two leaders run it at once: leadership only saves work (FENCES, what guards what).
    """

    name: str
    interval_s: float
    #: One instance at a time is enough.
    needs_leader: bool

    async def run_once(self, now: datetime) -> ChoreResult:
        """Do what is due. Tests call this and never sleep."""
        ...
