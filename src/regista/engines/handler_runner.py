"""HandlerRunner: runs one handler of one job and turns whatever happens into a value."""

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ..aio import await_user_code, call_user_code
from ..blueprint import ActionFactory, Graph, JobContext, StateMachineBlueprint
from ..blueprint.arguments import Unstorable
from ..blueprint.decisions import Decision, HandlerFailed
from ..blueprint.handlers import Handler
from ..blueprint.source_analysis import may_suspend
from ..clock import Clock
from ..errors import ActionError, NotSerializable
from ..model import ClientConfig, Job, Task
from ..model.attributes import Attributes
from ..payloads.base import MARK, FetchFailure, broken, is_own
from ..payloads.task_files import TaskFiles
from ..redaction import redacted_exception
from ..serialization import safe_text, to_storable
from ..trace_context import CURRENT_SUBJECT
from .approval_tokens import ApprovalTokens
from .base import EngineObserver, NoObserver, RunningSpan

log = logging.getLogger("regista.engine")

#: A handler that blocks the event loop for longer is logged.
_HOLDS_LOOP_MS = 50.0

HandlerOutcome = Decision | HandlerFailed
_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_decision = msgspec.msgpack.Decoder(Decision).decode
#: How error messages name what a handler leaves.
_LEFT = "what the handler left"


class HandlerRunner:
    """Runs handlers. Whatever a handler raises becomes a value; `run` does not raise it."""

    def __init__(
        self,
        clock: Clock,
        clients: Mapping[str, ClientConfig],
        tokens: ApprovalTokens,
        *,
        attributes: Attributes | None = None,
        files: Callable[[str], TaskFiles] | None = None,
        blocking_threads: int = 32,
        observer: EngineObserver | None = None,
    ) -> None:
        """`attributes` are the search attributes that every blueprint may set beside its own.

        `files` gives the files of a job, where there is a payload store.
        """
        self._clock = clock
        self._clients = clients
        self._tokens = tokens
        self._attributes = attributes or {}
        self._files = files
        self._observer = observer if observer is not None else NoObserver()
        self._blocking_threads = blocking_threads
        #: Runs handlers declared `blocking=True`. The loop's own pool resolves names and reads files.
        self._pool: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """Releases the threads. Blocking handlers that have not begun are dropped; the next `run` starts a new pool."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def run(
        self, blueprint: StateMachineBlueprint, graph: Graph, job: Job, tasks: list[Task] | None
    ) -> HandlerOutcome | asyncio.Future[HandlerOutcome]:
        """Runs the handler of the job's state: its outcome at once, or a future if the handler suspends.

        Log lines of the handler carry the job's id, and what it submits belongs to the job's trace.
        """
        span = self._observer.handler_span(job)
        subject = CURRENT_SUBJECT.set(job)
        try:
            outcome = self._run(blueprint, graph, job, tasks)
        finally:
            CURRENT_SUBJECT.reset(subject)
            if span is not None:
                span.off()
        if span is not None:
            _finish_span(span, outcome)
        return outcome

    def _run(
        self, blueprint: StateMachineBlueprint, graph: Graph, job: Job, tasks: list[Task] | None
    ) -> HandlerOutcome | asyncio.Future[HandlerOutcome]:
        began = self._clock.elapsed()
        if MARK in job.input or MARK in job.data or (tasks is not None and _marked(tasks)):
            why = _missing_payload(job, tasks or (), self._files is not None)
            if why is not None:  # no handler may decide without a value that cannot be read
                return HandlerFailed(code=why.code, message=why.message, final=why.permanent)
        declared = blueprint.search_attributes
        if self._attributes:
            declared = {**self._attributes, **declared}
        actions = ActionFactory(graph, job.state, lambda: self._tokens.token(job), declared)
        client = self._clients.get(job.client) or _unknown_client(job.client)
        results = None if tasks is None else {task.id: _result_of(task) for task in tasks}
        # A copy: what a handler writes must not change the record.
        kept = _decode_any(_encode(job.data)) if job.data else {}
        context = JobContext(job, kept, client, blueprint.data_stores, results, actions, self._files)
        try:
            handler = blueprint.select(job.state, context)
            if handler is None:
                message = "no condition matches, and there is no handler without one"
                return HandlerFailed(code="no_handler", message=message, final=True)
            return self._call(handler, context, actions, began)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a user raises is a value here
            return self._failed(error, began, job)

    def _call(
        self, handler: Handler, context: JobContext, actions: ActionFactory, began: float
    ) -> HandlerOutcome | asyncio.Future[HandlerOutcome]:
        if handler.blocking:
            loop = asyncio.get_running_loop()
            about = contextvars.copy_context()
            call = loop.run_in_executor(
                self._blocking_pool(), about.run, call_user_code, handler.call, context, actions
            )
            return loop.create_task(self._later(call, context, actions, began))
        if not handler.is_async:
            returned = handler.call(context, actions)
            # A plain wrapper around an async function is still one.
            if returned is not None and inspect.isawaitable(returned):
                return _start(self._later(returned, context, actions, began))
        elif may_suspend(handler.func):
            return _start(self._later(handler.call(context, actions), context, actions, began))
        else:
            # By its source it awaits nothing: it runs to its end at once, without a task and a turn of the loop.
            steps = handler.call(context, actions).__await__()
            try:
                awaited = next(steps)
            except StopIteration:
                pass
            else:  # what runs is not what the source shows; a file that was edited since the import, for example
                return _start(self._later(_resumed(steps, awaited), context, actions, began))
        verdict = self._verdict(context, actions, began)
        if verdict.duration_ms > _HOLDS_LOOP_MS:
            log.warning(
                "handler %s of state %r held the loop for %.0f ms; declare it blocking=True",
                handler.name,
                handler.state,
                verdict.duration_ms,
                extra={"action": "handler_held_loop", "job_id": context.job_id},
            )
        return verdict

    def _blocking_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._blocking_threads, thread_name_prefix="blocking-handler")
        return self._pool

    async def _later(
        self, call: Any, context: JobContext, actions: ActionFactory, began: float
    ) -> HandlerOutcome:
        try:
            returned = await await_user_code(call)
            if inspect.isawaitable(returned):
                await await_user_code(returned)
            return self._verdict(context, actions, began)
        except Exception as error:  # noqa: BLE001  # a user's error is a value here
            return self._failed(error, began, context._job)

    def _verdict(self, context: JobContext, actions: ActionFactory, began: float) -> Decision:
        """The decision as it will be stored: a copy that shares no object with the handler."""
        duration_ms = (self._clock.elapsed() - began) * 1000
        decision = actions.decision(context.state_history, duration_ms)
        try:
            return to_storable(decision, _decode_decision, _LEFT)
        except NotSerializable as error:
            raise Unstorable(str(error)) from error

    def _failed(self, error: BaseException, began: float, job: Job) -> HandlerFailed:
        # The job's data belongs to its client and does not belong in the log.
        shown = redacted_exception(error, job.input, job.data)
        log.warning(
            "handler of state %r failed: %s",
            job.state,
            safe_text(shown),
            exc_info=shown,
            extra={"action": "handler_failed", "job_id": job.id},
        )
        return HandlerFailed(
            code=getattr(error, "code", "handler_error")
            if isinstance(error, ActionError)
            else "handler_error",
            message=_error_message(error, job),
            # An action against the rules is an error in the blueprint: the next run would make it again.
            final=isinstance(error, ActionError),
            duration_ms=round((self._clock.elapsed() - began) * 1000, 3),
        )


def _finish_span(span: RunningSpan, outcome: "HandlerOutcome | asyncio.Future[HandlerOutcome]") -> None:
    """Ends the span now, or when the handler has ended."""

    def end(done: "asyncio.Future[HandlerOutcome]") -> None:
        span.done("cancelled" if done.cancelled() else _fault(done.result()))

    if isinstance(outcome, asyncio.Future):
        outcome.add_done_callback(end)
    else:
        span.done(_fault(outcome))


def _fault(verdict: HandlerOutcome) -> str | None:
    return verdict.message if isinstance(verdict, HandlerFailed) else None


def _marked(tasks: Sequence[Task]) -> bool:
    """Whether the result of a branch may be in the payload store."""
    results = [task.result.data for task in tasks if task.result is not None]
    return any(isinstance(data, dict) and MARK in data for data in results)


def _missing_payload(job: Job, tasks: Sequence[Task], followed: bool) -> FetchFailure | None:
    """Why a large value of the job cannot be read; None: what looks like a reference is a value of the client.

    Without a payload store the references are not `followed`, and those of an earlier store remain.
    """
    results = [task.result.data for task in tasks if task.result is not None]
    values = (job.input, job.data, *results)
    if followed or not any(is_own(job.id, value) for value in values):
        return broken(*values)
    return FetchFailure("payloads_disabled", "a value lies in a payload store, and none is configured", True)


def _error_message(error: BaseException, job: Job) -> str:
    """The message of an error. For an action against the rules, code and state are shown beside it."""
    if isinstance(error, ActionError):
        return safe_text(error).removeprefix(f"state {job.state!r}: ")
    return f"{type(error).__name__}: {safe_text(error)}"


@functools.lru_cache(maxsize=256)
def _unknown_client(name: str) -> ClientConfig:
    """The record of a client that is not configured."""
    return ClientConfig(name=name)


@types.coroutine
def _resumed(steps: Generator[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has begun outside of a task and waits for `awaited`."""
    yield awaited
    return (yield from steps)


def _start(coroutine: Coroutine[Any, Any, HandlerOutcome]) -> asyncio.Task[HandlerOutcome]:
    """A task for a coroutine that may suspend. Since Python 3.12 it runs at once up to the first suspension."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def _result_of(task: Task) -> dict[str, Any]:
    return task.result.as_dict() if task.result is not None else {}
