"""Explanation: why a job or task does not progress, and what would change that."""

from datetime import datetime

from msgspec import Struct


class Reason(Struct, frozen=True):
    """One condition, how many workers it keeps away, and what would change it. Codes are stable."""

    code: str
    detail: str
    unblock: str = ""
    workers: int = 0
    #: How many waiting tasks of the job it holds back; 0 where it is not about those.
    tasks: int = 0


class Explanation(Struct, frozen=True, kw_only=True):
    """The answer to "why is this not running"."""

    #: job or task, and its id.
    kind: str
    id: str
    #: The whole answer in a sentence.
    summary: str
    since: datetime | None = None
    reasons: tuple[Reason, ...] = ()

    def sentences(self) -> list[str]:
        """The same for people."""
        return [self.summary, *(_sentence(reason) for reason in self.reasons)]


class Score(Struct, frozen=True):
    """What a strategy thinks of the workers of one class. The lower the score, the better."""

    worker_id: str
    #: Workers in its class, and their free slots.
    workers: int
    free: int
    fits: bool
    score: tuple[float, ...]
    why: str


def _sentence(reason: Reason) -> str:
    held = f" {reason.tasks} tasks wait for that." if reason.tasks > 1 else ""
    who = f"{reason.workers} worker{'s' if reason.workers != 1 else ''}: " if reason.workers else ""
    what = f" To change that: {reason.unblock}." if reason.unblock else ""
    return f"{reason.code}: {who}{reason.detail}.{held}{what}"
