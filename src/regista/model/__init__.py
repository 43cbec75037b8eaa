"""The frozen records that all packages share. Nothing here does I/O.

They are declared with `gc=False`: a record never refers to itself, so the garbage collector can skip
the hundred thousands of records that a busy orchestrator makes every second.
"""

from .change import Change, ChildJob, CommitOutcome, CommitStatus, JobMessage, JobMessageKind, TaskWrite
from .client import ClientConfig
from .event import Event, EventType, JobSummary, OutboxEntry
from .job import (
    APPROVALS_KEPT,
    FINISHED_TASKS_KEPT,
    Approval,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    AwaitVersion,
    Cancellation,
    Fault,
    FinishedTasks,
    Job,
    Wait,
    was_accepted,
)
from .queue_key import (
    MatchOptions,
    QueueKey,
    QueueStatus,
    match_options,
    match_options_text,
    parse_queue_key,
    queue_key_text,
)
from .rate import Rate
from .record import Quota, Record, RecordWrite, TokenGrant
from .requirements import STRATEGIES, Requirements, check_requirements
from .status import HELD_STATES, OPEN_STATES, AttemptState, FailureKind, JobStatus, ResultVerdict
from .task import (
    RetryPolicy,
    Task,
    TaskFailure,
    TaskResult,
    job_id_of_task,
    split_attempt_id,
    task_id_of_attempt,
)
from .worker import FreeSlots, Gpu, Profile, Worker

__all__ = [
    "APPROVALS_KEPT",
    "FINISHED_TASKS_KEPT",
    "HELD_STATES",
    "OPEN_STATES",
    "STRATEGIES",
    "Approval",
    "AttemptState",
    "AwaitBranches",
    "AwaitChild",
    "AwaitHuman",
    "AwaitRetry",
    "AwaitTask",
    "AwaitTimer",
    "AwaitVersion",
    "Cancellation",
    "Change",
    "ChildJob",
    "ClientConfig",
    "CommitOutcome",
    "CommitStatus",
    "Event",
    "EventType",
    "FailureKind",
    "Fault",
    "FinishedTasks",
    "FreeSlots",
    "Gpu",
    "Job",
    "JobMessage",
    "JobMessageKind",
    "JobStatus",
    "JobSummary",
    "MatchOptions",
    "OutboxEntry",
    "Profile",
    "QueueKey",
    "QueueStatus",
    "Quota",
    "Rate",
    "Record",
    "RecordWrite",
    "Requirements",
    "ResultVerdict",
    "RetryPolicy",
    "Task",
    "TaskFailure",
    "TaskResult",
    "TaskWrite",
    "TokenGrant",
    "Wait",
    "Worker",
    "check_requirements",
    "job_id_of_task",
    "match_options",
    "match_options_text",
    "parse_queue_key",
    "queue_key_text",
    "split_attempt_id",
    "task_id_of_attempt",
    "was_accepted",
]
