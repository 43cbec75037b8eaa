"""Runner: runs one handler of one job and turns whatever happens into a value."""

import asyncio
import functools
import hmac
import inspect
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from ...blueprint import ActionFactory, Graph, JobContext, StateMachineBlueprint
from ...blueprint.decisions import Decision, Finish, HandlerFailed, Transition
from ...blueprint.handlers import Handler
from ...clock import Clock
from ...errors import ActionError, NotPlain
from ...model import ClientConfig, Job, Task
from ...plain import contained, contained_async, plain, words

log = logging.getLogger("regista.engine")

#: A handler that holds the loop longer than this is named in the log.
_HOLDS_LOOP_MS = 50.0

Verdict = Decision | HandlerFailed
_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_decision = msgspec.msgpack.Decoder(Decision).decode


class Runner:
    """Runs handlers. Their errors become values; nothing that a user writes can raise out of here."""

    def __init__(self, clock: Clock, clients: Mapping[str, ClientConfig], secret: bytes = b"") -> None:
        self._clock = clock
        self._clients = clients
        self.secret = secret

    def run(
        self, blueprint: StateMachineBlueprint, graph: Graph, job: Job, tasks: list[Task] | None
    ) -> Verdict | asyncio.Future[Verdict]:
        """Run the handler of the job's state: a verdict at once, or a future if the handler suspends."""
        began = self._clock.elapsed()
        actions = ActionFactory(graph, job.state, functools.partial(approval_token, self.secret, job))
        client = self._clients.get(job.client) or _stranger(job.client)
        results = None if tasks is None else {task.id: _result_of(task) for task in tasks}
        context = JobContext(job, client, blueprint.data_stores, results, actions)
        # Dictionaries of its own: what a handler writes must not reach the record by itself.
        context.initial_data = _decode_any(_encode(job.input)) if job.input else {}
        context.state_history = _decode_any(_encode(job.data)) if job.data else {}
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
    ) -> Verdict | asyncio.Future[Verdict]:
        if handler.blocking:
            loop = asyncio.get_running_loop()
            call = loop.run_in_executor(None, contained, handler.func, context, actions)
            return loop.create_task(self._later(call, context, actions, began))
        if not handler.is_async:
            returned = handler.func(context, actions)
            # A plain wrapper around an async function is still one.
            if returned is not None and inspect.isawaitable(returned):
                return _start(self._later(returned, context, actions, began))
        elif handler.suspends:
            return _start(self._later(handler.func(context, actions), context, actions, began))
        else:
            # It awaits nothing, so one push runs it through, without a task and a turn of the loop.
            try:
                handler.func(context, actions).send(None)
            except StopIteration:
                pass
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

    async def _later(self, call: Any, context: JobContext, actions: ActionFactory, began: float) -> Verdict:
        try:
            returned = await contained_async(call)
            if inspect.isawaitable(returned):
                await contained_async(returned)
            return self._verdict(context, actions, began)
        except Exception as error:  # noqa: BLE001  # a user's error is a value here
            return self._failed(error, began, context._job)

    def _verdict(self, context: JobContext, actions: ActionFactory, began: float) -> Decision:
        """The decision as the store will see it: no object of the handler's is in it any more."""
        duration_ms = (self._clock.elapsed() - began) * 1000
        decision = actions.decision(context.state_history, duration_ms)
        if (
            not decision.data
            and decision.result is UNSET
            and isinstance(decision.action, Transition | Finish)
        ):
            return decision  # nothing of the handler's is in it anyway
        try:
            return plain(decision, _decode_decision, "what the handler left")
        except NotPlain as error:
            raise _Unstorable(str(error)) from error

    def _failed(self, error: BaseException, began: float, job: Job) -> HandlerFailed:
        log.warning(
            "handler of state %r failed: %s",
            job.state,
            words(error),
            exc_info=error,
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


class _Unstorable(ActionError):
    """The handler left something behind that no store can keep. Running it again would do the same."""

    code = "unstorable"


def _said(error: BaseException, job: Job) -> str:
    """What is told of an error. Who reads of a wish against the rules knows its code and its state anyway."""
    if isinstance(error, ActionError):
        return words(error).removeprefix(f"state {job.state!r}: ")
    return f"{type(error).__name__}: {words(error)}"


@functools.lru_cache(maxsize=256)
def _stranger(name: str) -> ClientConfig:
    """A client that nobody configured."""
    return ClientConfig(name=name)


def _start(coroutine: Coroutine[Any, Any, Verdict]) -> asyncio.Task[Verdict]:
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
