"""Worker: the functions that do the work, by skill."""

import dis
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..errors import NotPlain
from ..model import Task
from ..plain import plain, plain_text

_decode_any = msgspec.msgpack.Decoder().decode

Function = TypeVar("Function", bound=Callable[..., Any])


class Skill(Struct, frozen=True):
    """A function, and how to call it."""

    name: str
    func: Callable[..., Any]
    is_async: bool
    #: How many of (params, context) it takes.
    arity: int
    #: False: it awaits nothing, so a coroutine of it runs to its end with one `send(None)`.
    suspends: bool = True


class Worker:
    """Collects task functions. Connect it to an orchestrator, in this process or in another.

    A function takes `params` (a dict) and, if it has a second parameter, a `TaskContext`. It returns
    its data; or a dict of `status`, `data` and `error` to say more; or raises `TransientError`,
    `PermanentError` or `InvalidInputError`. Any other exception counts as transient. Plain functions
    run in threads.
    """

    def __init__(
        self, name: str = "local", *, concurrency: int = 10, queues: list[str] | None = None
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency: expected at least 1, got {concurrency}")
        self.name = name
        self.concurrency = concurrency
        self.queues = tuple(queues) if queues is not None else None
        self.skills: dict[str, Skill] = {}

    def task(self, name: str) -> Callable[[Function], Function]:
        """Register a function as the skill `name`."""

        def register(func: Function) -> Function:
            if name in self.skills:
                raise ValueError(f"worker {self.name!r} already has a task {name!r}")
            is_async = inspect.iscoroutinefunction(func)
            self.skills[name] = Skill(name, func, is_async, _arity(name, func), not is_async or _waits(func))
            return func

        return register


class TaskContext:
    """What a task function may know and say about its attempt."""

    def __init__(self, task: Task, report: Callable[[str, float | None, str, Any], None]) -> None:
        #: Stable over retries: use it to make side effects idempotent.
        self.task_id = task.id
        self.attempt_id = task.attempt_id
        self.attempt = task.attempt
        self.job_id = task.job_id
        #: What an earlier attempt left with `progress(checkpoint=…)`.
        self.checkpoint = task.checkpoint
        self.deadline: datetime | None = task.deadline
        self._report = report
        #: Somebody wants this attempt to stop. An async function gets CancelledError; a thread must look.
        self.cancelled = False

    def progress(self, value: float | None = None, message: str = "", *, checkpoint: Any = None) -> None:
        """Say how far it is (0 to 1), and leave a checkpoint for the next attempt. Cheap; any thread."""
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise NotPlain("progress", f"expected a number from 0 to 1, got {value!r}")
        message = plain_text(message, "message")
        if checkpoint is not None:
            checkpoint = plain(checkpoint, _decode_any, "checkpoint")
        self._report(self.attempt_id, value, message, checkpoint)


def _arity(name: str, func: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(func).parameters.values()
    required = sum(p.kind in kinds and p.default is p.empty for p in parameters)
    count = sum(p.kind in kinds for p in parameters)
    if required > 2:
        raise ValueError(f"task {name!r}: expected a function of (params) or (params, context), got {func}")
    return min(count, 2)


def _waits(func: Callable[..., Any]) -> bool:
    code = getattr(func, "__code__", None)
    waits = {"SEND", "GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"}
    return code is None or any(step.opname in waits for step in dis.get_instructions(code))
