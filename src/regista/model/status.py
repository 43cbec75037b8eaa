"""Statuses of jobs, attempts and failures, and the groups of them that code asks for."""

from enum import StrEnum


class JobStatus(StrEnum):
    """The status of a job."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_FOR_WORKER = "waiting_for_worker"
    WAITING_FOR_PARALLEL = "waiting_for_parallel"
    WAITING_FOR_HUMAN = "waiting_for_human"
    WAITING_FOR_CHILD = "waiting_for_child"
    WAITING_FOR_TIMER = "waiting_for_timer"
    CANCELLING = "cancelling"
    QUARANTINED = "quarantined"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    #: Final: the job never changes again.
    terminal: bool
    #: Terminal, or quarantined and waiting for a person.
    settled: bool

    def __init__(self, value: str) -> None:
        # Computed once: every step of every job reads them, and a set of members hashes them in Python each time.
        self.terminal = value in {"finished", "failed", "cancelled"}
        self.settled = self.terminal or value == "quarantined"


class AttemptState(StrEnum):
    """The state of the current attempt of a task: queued → offered → started → closed."""

    QUEUED = "queued"
    OFFERED = "offered"
    STARTED = "started"
    CLOSED = "closed"


#: The states of an attempt whose result is accepted.
OPEN_STATES = (AttemptState.QUEUED, AttemptState.OFFERED, AttemptState.STARTED)
#: The states of an attempt that a worker may be running.
HELD_STATES = (AttemptState.OFFERED, AttemptState.STARTED)


class ResultVerdict(StrEnum):
    """What became of a result; the values are the wire's."""

    ACCEPTED = "accepted"
    JOB_NOT_FOUND = "job_not_found"
    STALE_TASK = "stale_task"
    WORKER_MISMATCH = "worker_mismatch"
    JOB_CANCELLED = "job_cancelled"
    JOB_ALREADY_TERMINATED = "job_already_terminated"

    @property
    def accepted(self) -> bool:
        """The result counts (now, or since it was sent the first time)."""
        return self is ResultVerdict.ACCEPTED


class FailureKind(StrEnum):
    """What kind of failure a worker reported; the value is the wire's error code."""

    TRANSIENT = "TRANSIENT_ERROR"
    PERMANENT = "PERMANENT_ERROR"
    INVALID_INPUT = "INVALID_INPUT_ERROR"

    @classmethod
    def of(cls, code: str | None) -> "FailureKind":
        """The kind of a code. Unknown codes are transient, so they are retried."""
        return _KINDS.get(code or "", cls.TRANSIENT)


_KINDS = {
    "TRANSIENT_ERROR": FailureKind.TRANSIENT,
    "PERMANENT_ERROR": FailureKind.PERMANENT,
    "SECURITY_ERROR": FailureKind.PERMANENT,
    "DEPENDENCY_ERROR": FailureKind.PERMANENT,
    "DEPENDENCY_MISSING_ERROR": FailureKind.PERMANENT,
    "CONTRACT_VIOLATION_ERROR": FailureKind.PERMANENT,
    "INVALID_INPUT_ERROR": FailureKind.INVALID_INPUT,
    "INTEGRITY_MISMATCH_ERROR": FailureKind.INVALID_INPUT,
}
