"""Decisions of handlers, as values. The machine turns them into steps."""

from typing import Any, final

from msgspec import UNSET, Struct, UnsetType, field

from ..model import RetryPolicy


class TaskOrder(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One `dispatch_task` call."""

    task_type: str
    params: dict[str, Any]
    transitions: dict[str, str]
    priority: float | None = None
    queue: str | None = None
    dispatch_timeout_s: float | None = None
    result_timeout_s: float | None = None
    attempt_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None
    retry: RetryPolicy | None = None
    requirements: dict[str, Any] = field(default_factory=dict)
    strategy: str | None = None
    max_cost: float | None = None


@final
class Transition(Struct, frozen=True, tag=True, gc=False):
    """Go on in another state, at once."""

    to: str


@final
class Dispatch(Struct, frozen=True, tag=True, gc=False):
    """Hand one task to a worker; its status is the key into the transitions."""

    order: TaskOrder


class FanOut(Struct, frozen=True, tag=True, gc=False):
    """Hand several tasks to workers at once; when all are over, the aggregator runs."""

    orders: tuple[TaskOrder, ...]
    aggregator: str


class AskHuman(Struct, frozen=True, tag=True, gc=False):
    """Wait for a person; the decision is the key into the transitions."""

    message: str
    transitions: dict[str, str]
    integration: str | None = None


class RunChild(Struct, frozen=True, tag=True, gc=False):
    """Run another blueprint; its outcome is the key into the transitions."""

    blueprint: str
    input: dict[str, Any]
    transitions: dict[str, str]


class Sleep(Struct, frozen=True, tag=True, gc=False):
    """Wait for the clock, then go on in `then`."""

    seconds: float
    then: str


class Fail(Struct, frozen=True, tag=True, gc=False):
    """End the job as failed (through the state `failed` when the blueprint has one)."""

    reason: str
    code: str = "failed_by_handler"


@final
class Finish(Struct, frozen=True, tag=True, gc=False):
    """The handler of an end state is through."""


Action = Transition | Dispatch | FanOut | AskHuman | RunChild | Sleep | Fail | Finish


class Decision(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a handler decided: one action, and the data that it leaves."""

    action: Action
    #: `context.state_history` as the handler left it.
    data: dict[str, Any]
    result: Any | UnsetType = UNSET
    search_attributes: dict[str, Any] = field(default_factory=dict)
    duration_ms: float = 0.0


class HandlerFailed(Struct, frozen=True, kw_only=True, gc=False):
    """The handler raised, or took an impossible action. What it wrote is dropped."""

    message: str
    code: str = "handler_error"
    #: Running it again cannot help (no handler matches, an action against the graph).
    final: bool = False
    duration_ms: float = 0.0
