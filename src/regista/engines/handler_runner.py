"""HandlerRunner: runs one handler of one job and turns whatever happens into a value."""

import asyncio
import contextvars
import functools
import hmac
import inspect
import logging
import sys
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from ..aio import await_user_code, call_user_code
from ..blueprint import ActionFactory, Graph, JobContext, StateMachineBlueprint
from ..blueprint.analysis import may_suspend
from ..blueprint.arguments import Unstorable
from ..blueprint.decisions import Decision, HandlerFailed
from ..blueprint.handlers import Handler
from ..clock import Clock
from ..errors import ActionError, NotSerializable
from ..model import ClientConfig, Job, Task
from ..model.attributes import Attributes
from ..payloads.base import MARK, Broken, broken, is_own
from ..payloads.task_files import TaskFiles
from ..redaction import redacted_exception
from ..serialization import safe_text, to_storable
from ..trace_context import CURRENT_SUBJECT

log = logging.getLogger("regista.engine")

#: A handler that holds the loop longer than this is named in the log.
_HOLDS_LOOP_MS = 50.0

HandlerOutcome = Decision | HandlerFailed
_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_decision = msgspec.msgpack.Decoder(Decision).decode
#: How messages name what a handler leaves.
_LEFT = "what the handler left"


class Spot(Protocol):
    """The light on one run of a handler; tracing gives it."""

    def off(self) -> None:
        """What runs from here on is somebody else's."""
        ...

    def done(self, error: str | None) -> None:
        """It has decided, or failed."""
        ...


class HandlerRunner:
    """Runs handlers. Their errors become values; nothing that a user writes can raise out of here."""

    def __init__(
        self,
        clock: Clock,
        clients: Mapping[str, ClientConfig],
        secret: bytes = b"",
        declared: Attributes | None = None,
        blocking_threads: int = 32,
    ) -> None:
        self._clock = clock
        self._blocking_threads = blocking_threads
        #: Runs handlers that are declared `blocking=True`; not the loop's own pool, which resolves names and reads files.
        self._pool: ThreadPoolExecutor | None = None
        self._clients = clients
        self.secret = secret
        #: Called before each run of a handler, where somebody traces.
        self.spotlight: Callable[[Job], Spot | None] | None = None
        #: Search attributes that every blueprint may set beside its own.
        self._declared = declared or {}
        #: The files of a job, where there is a payload store.
        self.files: Callable[[str], TaskFiles] | None = None

    def stop(self) -> None:
        """Releases the threads. Blocking handlers that have not begun are dropped; the next `run` starts a new pool."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def run(
        self, blueprint: StateMachineBlueprint, graph: Graph, job: Job, tasks: list[Task] | None
    ) -> HandlerOutcome | asyncio.Future[HandlerOutcome]:
        """Run the handler of the job's state: a verdict at once, or a future if the handler suspends.

        What it logs carries the job's id, and what it submits belongs to the job's trace.
        """
        spot = None if self.spotlight is None else self.spotlight(job)
        about = CURRENT_SUBJECT.set(job)
        try:
            verdict = self._run(blueprint, graph, job, tasks)
        finally:
            CURRENT_SUBJECT.reset(about)
            if spot is not None:
                spot.off()
        if spot is not None:
            _see_through(spot, verdict)
        return verdict

    def _run(
        self, blueprint: StateMachineBlueprint, graph: Graph, job: Job, tasks: list[Task] | None
    ) -> HandlerOutcome | asyncio.Future[HandlerOutcome]:
        began = self._clock.elapsed()
        if MARK in job.input or MARK in job.data or (tasks is not None and _marked(tasks)):
            why = _lack(job, tasks or (), self.files is not None)
            if why is not None:  # no handler may decide without a value that could not be had
                return HandlerFailed(code=why.code, message=why.message, final=why.permanent)
        declared = blueprint.search_attributes
        if self._declared:
            declared = {**self._declared, **declared}
        actions = ActionFactory(graph, job.state, lambda: approval_token(self.secret, job), declared)
        client = self._clients.get(job.client) or _stranger(job.client)
        results = None if tasks is None else {task.id: _result_of(task) for task in tasks}
        # A dictionary of its own: what a handler writes must not reach the record by itself.
        kept = _decode_any(_encode(job.data)) if job.data else {}
        context = JobContext(job, kept, client, blueprint.data_stores, results, actions, self.files)
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
        """The decision as the store will see it: no object of the handler's is in it any more."""
        duration_ms = (self._clock.elapsed() - began) * 1000
        decision = actions.decision(context.state_history, duration_ms)
        try:
            return to_storable(decision, _decode_decision, _LEFT)
        except NotSerializable as error:
            raise Unstorable(str(error)) from error

    def _failed(self, error: BaseException, began: float, job: Job) -> HandlerFailed:
        # What the job carries is its owner's; whoever reads the log need not see it.
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
            message=_said(error, job),
            # A wish against the rules is a mistake in the script: the next run would make it again.
            final=isinstance(error, ActionError),
            duration_ms=round((self._clock.elapsed() - began) * 1000, 3),
        )


def _see_through(spot: Spot, verdict: "HandlerOutcome | asyncio.Future[HandlerOutcome]") -> None:
    """Tell the light how it went: now, or when the handler is through."""

    def tell(done: "asyncio.Future[HandlerOutcome]") -> None:
        spot.done("cancelled" if done.cancelled() else _fault(done.result()))

    if isinstance(verdict, asyncio.Future):
        verdict.add_done_callback(tell)
    else:
        spot.done(_fault(verdict))


def _fault(verdict: HandlerOutcome) -> str | None:
    return verdict.message if isinstance(verdict, HandlerFailed) else None


def _marked(tasks: Sequence[Task]) -> bool:
    """Some result of a branch looks as if it lay elsewhere."""
    results = [task.result.data for task in tasks if task.result is not None]
    return any(isinstance(data, dict) and MARK in data for data in results)


def _lack(job: Job, tasks: Sequence[Task], followed: bool) -> Broken | None:
    """Why a large value of the job could not be had; None: what looks like one that lies elsewhere is its owner's.

    Where there is no payload store nobody has `followed` the references, and those of an earlier one are left.
    """
    results = [task.result.data for task in tasks if task.result is not None]
    values = (job.input, job.data, *results)
    if followed or not any(is_own(job.id, value) for value in values):
        return broken(*values)
    return Broken("payloads_disabled", "a value lies in a payload store, and none is configured", True)


def _said(error: BaseException, job: Job) -> str:
    """What is told of an error. Who reads of a wish against the rules knows its code and its state anyway."""
    if isinstance(error, ActionError):
        return safe_text(error).removeprefix(f"state {job.state!r}: ")
    return f"{type(error).__name__}: {safe_text(error)}"


@functools.lru_cache(maxsize=256)
def _stranger(name: str) -> ClientConfig:
    """A client that nobody configured."""
    return ClientConfig(name=name)


@types.coroutine
def _resumed(steps: Generator[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that has begun outside of a task and waits for `awaited`."""
    yield awaited
    return (yield from steps)


def _start(coroutine: Coroutine[Any, Any, HandlerOutcome]) -> asyncio.Task[HandlerOutcome]:
    """A task for a coroutine that may suspend; where Python can, it runs up to there at once."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def _result_of(task: Task) -> dict[str, Any]:
    return task.result.as_dict() if task.result is not None else {}


def approval_token(secret: bytes, job: Job) -> str:
    """Names one visit of one state of one job; the same when the handler is run again. FENCES 18."""
    message = f"{job.id}\n{job.state}\n{job.visit}".encode()
    return hmac.digest(secret, message, "sha256").hex()
