"""Results: how results and progress are written down, and how a polling worker sends them."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ...model import TaskFailure, TaskResult
from ...serialization import safe_text, to_storable
from ...workers.protocol import frames
from ..task_runner import RunningTask
from .base import SessionEnded, WorkerRuntime, WorkerSession, WorkerTransport

log = logging.getLogger("regista.worker")

#: Results on their way at once.
_SENDERS = 4
#: The answers to a result which say that it is the result's own fault.
_AT_FAULT = (400, 413, 422)

_encode = msgspec.json.encode


class Request(Protocol):
    """Asks, and returns the status and the body of an answer that counts."""

    async def __call__(
        self, method: str, url: str, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> tuple[int, bytes]: ...


class ResultSender:
    """Progress and results of one conversation. Before a result is told, so is all that was said before it."""

    def __init__(self, request: Request, session: WorkerSession, runtime: WorkerRuntime) -> None:
        self._request = request
        self._session = session
        self._runtime = runtime
        self._results: asyncio.Queue[RunningTask] = asyncio.Queue()
        #: Attempt → the last word about it, if nobody has heard it; and the one that is being told.
        self._progress: dict[str, dict[str, Any]] = {}
        self._has_progress = asyncio.Event()
        self._telling = asyncio.Lock()
        self._told_now = ""
        #: Attempts whose result was sent back, and that have another one now.
        self._sent_back: set[str] = set()

    def chores(self) -> "list[Coroutine[Any, Any, None]]":
        """What has to run for as long as the conversation does."""
        return [self._tell_on(), *(self._send_on() for _ in range(_SENDERS))]

    # -- progress --------------------------------------------------------------------------------

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        """An event; of those that wait the last one is told, with the last checkpoint."""
        old = self._progress.get(running_task.attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old["payload"].get("checkpoint")
        payload = {"progress": value, "message": message, "checkpoint": checkpoint}
        self._progress[running_task.attempt_id] = {
            "event_id": f"{running_task.attempt_id}-{datetime.now(UTC).timestamp()}",
            "worker_id": self._session.worker_id,
            "origin_worker_id": self._session.worker_id,
            "event_type": "progress",
            "payload": {key: each for key, each in payload.items() if each is not None},
            "target_task_id": running_task.attempt_id,
            "target_job_id": running_task.job_id,
            "origin_task_id": running_task.attempt_id,
        }
        self._has_progress.set()

    async def _tell_on(self) -> None:
        while True:
            await self._has_progress.wait()
            self._has_progress.clear()
            for attempt_id in list(self._progress):
                await self._tell(attempt_id)

    async def _tell(self, attempt_id: str) -> None:
        """Returns when all that was said about this one is told, in its order."""
        if attempt_id != self._told_now and attempt_id not in self._progress:
            return
        async with self._telling:
            if (event := self._progress.pop(attempt_id, None)) is not None:
                self._told_now = attempt_id
                await self._request("POST", f"{self._session.url}/_worker/events", event)
                self._told_now = ""

    # -- results ---------------------------------------------------------------------------------

    def finished(self, running_task: RunningTask) -> None:
        """Send the result; it is kept until it was answered."""
        self._results.put_nowait(running_task)

    async def _send_on(self) -> None:
        while True:
            running_task = await self._results.get()
            await self._tell(
                running_task.attempt_id
            )  # a failed attempt leaves its checkpoint to the next one
            try:
                status, answer = await self._request(
                    "POST", f"{self._session.url}/_worker/tasks/result", self._body_of(running_task)
                )
            except RecursionError as error:  # so deep that it could just be looked at, and not be sent
                assert running_task.result is not None
                running_task.result = no_plain_data(running_task.result, error)
                self._results.put_nowait(running_task)
                continue
            if status == 200:
                self._runtime.task_runner.release(running_task.attempt_id)
            else:
                self._was_sent_back(running_task, status, safe_text(answer.decode(errors="replace"))[:300])

    def _was_sent_back(self, running_task: RunningTask, status: int, told: str) -> None:
        """Where it is the result's own fault, that becomes the result; else it would be waited for in vain."""
        if status not in _AT_FAULT:
            raise SessionEnded(f"HTTP {status} for a result: {told}")
        if running_task.attempt_id in self._sent_back:
            log.error("result of %s: HTTP %s %s", running_task.attempt_id, status, told)
            self._runtime.task_runner.release(running_task.attempt_id)
            return
        old = running_task.result
        assert old is not None
        self._sent_back.add(running_task.attempt_id)
        running_task.result = too_large(old) if status == 413 else not_taken(old, f"HTTP {status} {told}")
        self._results.put_nowait(running_task)

    def _body_of(self, running_task: RunningTask) -> dict[str, Any]:
        result = running_task.result
        assert result is not None
        error = result.error
        body: dict[str, Any] = {
            "job_id": result.job_id,
            "task_id": result.task_id,
            "worker_id": self._session.worker_id,
            "data": result.data,
            "error": None,
            "started_at": result.started_at,
        }
        if result.status is not None:
            body["status"] = result.status
        if error is not None:
            body["error"] = {"code": error.code, "message": error.message, "details": error.details}
            body.setdefault("status", "failure")
        try:
            _encode(body)
        except Exception as problem:  # noqa: BLE001  # the user's own objects are asked for what is in them
            told = f"the result is no plain data: {safe_text(problem)}"
            body |= {"data": None, "status": "failure"}
            body["error"] = {"code": "PERMANENT_ERROR", "message": told, "details": None}
        return body


#: What a message needs around one frame, at most.
_ROUND_IT = 16

_decode_any = msgspec.msgpack.Decoder().decode


def encode_result(result: TaskResult, max_bytes: int) -> msgspec.Raw:
    """The frame; a result that cannot be written down is the function's mistake, and says so."""
    try:
        frame = frames.encode(frames.ResultFrame(result))
    except Exception as error:  # noqa: BLE001  # the user's own objects are asked for what is in them
        return encode_result(no_plain_data(result, error), max_bytes)
    if max_bytes and len(frame) + _ROUND_IT > max_bytes:
        return encode_result(too_large(result), 0)
    return msgspec.Raw(frame)


def readable(result: TaskResult) -> TaskResult:
    """The result, or what is said in place of one that can be written down and then not read."""
    try:
        frames.decode_from_worker(frames.encode([frames.ResultFrame(result)]))
        to_storable(result.data, _decode_any, "data")
        to_storable(
            None if result.error is None else result.error.details, _decode_any, "the details of the error"
        )
    except Exception as error:  # noqa: BLE001  # as above
        return no_plain_data(result, error)
    return result


def no_plain_data(result: TaskResult, error: Exception) -> TaskResult:
    """What is said in place of a result that is not data."""
    return _instead(result, f"the result is no plain data: {safe_text(error)}")


def too_large(result: TaskResult) -> TaskResult:
    """What is said in place of a result that no message can carry."""
    return _instead(
        result, "the result is larger than this orchestrator takes; store it somewhere and return where"
    )


def not_taken(result: TaskResult, why: str) -> TaskResult:
    """What is said in place of a result that the orchestrator has sent back."""
    return _instead(result, f"the orchestrator does not take the result: {why}")


def _instead(result: TaskResult, message: str) -> TaskResult:
    return replace(result, status=None, data=None, error=TaskFailure("PERMANENT_ERROR", message))


def catch_up(runtime: WorkerRuntime, destination: str, voice: WorkerTransport) -> None:
    """Say what may have gone unheard: how far tasks are, and how they went."""
    for one in runtime.task_runner.running_tasks():
        if one.destination == destination and one.last_progress is not None:
            voice.progress(one, *one.last_progress)
        if one.destination == destination and one.result is not None:
            voice.finished(one)
