"""The nouns: frozen records that every room shares. Nothing here does I/O.

They are made with `gc=False`: a record never refers back to itself, so the collector need not look
at the hundred thousands of them that a busy orchestrator makes every second.
"""

from .change import Birth, Change, Message, MessageKind, Outcome, OutcomeKind, TaskWrite
from .client import ClientConfig
from .event import Entry, Event, EventType, Summary
from .item import Item, ItemWrite, Quota, Taken
from .job import (
    APPROVALS_KEPT,
    WAVES_KEPT,
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
    Job,
    Wait,
    Wave,
    was_heard,
)
from .lane import Lane, LaneStatus, Needs, lane_name, lane_of, needs_of, needs_text
from .rate import Rate
from .requirements import STRATEGIES, Requirements, check_requirements
from .status import HELD_STATES, OPEN_STATES, AttemptState, FailureKind, JobStatus
from .task import RetryPolicy, Task, TaskFailure, TaskResult, job_of, task_id_of, task_of
from .worker import Gpu, Profile, Slots, Worker

__all__ = [
    "APPROVALS_KEPT",
    "HELD_STATES",
    "OPEN_STATES",
    "STRATEGIES",
    "WAVES_KEPT",
    "Approval",
    "AttemptState",
    "AwaitBranches",
    "AwaitChild",
    "AwaitHuman",
    "AwaitRetry",
    "AwaitTask",
    "AwaitTimer",
    "AwaitVersion",
    "Birth",
    "Cancellation",
    "Change",
    "ClientConfig",
    "Entry",
    "Event",
    "EventType",
    "FailureKind",
    "Fault",
    "Gpu",
    "Item",
    "ItemWrite",
    "Job",
    "JobStatus",
    "Lane",
    "LaneStatus",
    "Message",
    "MessageKind",
    "Needs",
    "Outcome",
    "OutcomeKind",
    "Profile",
    "Quota",
    "Rate",
    "Requirements",
    "RetryPolicy",
    "Slots",
    "Summary",
    "Taken",
    "Task",
    "TaskFailure",
    "TaskResult",
    "TaskWrite",
    "Wait",
    "Wave",
    "Worker",
    "check_requirements",
    "job_of",
    "lane_name",
    "lane_of",
    "needs_of",
    "needs_text",
    "task_id_of",
    "task_of",
    "was_heard",
]
