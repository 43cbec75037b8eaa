"""Results: how results and progress are encoded, and how a polling worker sends them."""

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
from ..http import Reply
from ..registration import WorkerSession
from ..running_task import RunningTask
from .base import SessionEnded, WorkerRuntime

log = logging.getLogger("regista.worker")

#: Results that are sent at the same time.
_SENDERS = 4
#: The answers to a result which say that the result itself is wrong.
_RESULT_IS_WRONG = (400, 413, 422)
#: What a message needs around one frame, at most.
_ENVELOPE_BYTES = 16

_encode = msgspec.json.encode
_decode_any = msgspec.msgpack.Decoder().decode


# -- encoding ----------------------------------------------------------------------------------------


def encode_result(result: TaskResult, max_bytes: int) -> msgspec.Raw:
    """The frame of a result. A result that cannot be encoded, or is too large, becomes a failure that says so."""
    try:
        frame = frames.encode(frames.ResultFrame(result))
    except Exception as error:  # noqa: BLE001  # encoding calls the user's own objects
        return encode_result(failure_instead_of(result, not_storable(error)), max_bytes)
    if max_bytes and len(frame) + _ENVELOPE_BYTES > max_bytes:
        return encode_result(failure_instead_of(result, TOO_LARGE), 0)
    return msgspec.Raw(frame)


def readable(result: TaskResult) -> TaskResult:
    """The result, or a failure in place of one that can be encoded and then not decoded."""
    try:
        frames.decode_from_worker(frames.encode([frames.ResultFrame(result)]))
        to_storable(result.data, _decode_any, "data")
        details = None if result.error is None else result.error.details
        to_storable(details, _decode_any, "the details of the error")
    except Exception as error:  # noqa: BLE001  # as above
        return failure_instead_of(result, not_storable(error))
    return result


def failure_instead_of(result: TaskResult, message: str) -> TaskResult:
    """What is sent in place of a result that the orchestrator cannot take."""
    return replace(result, status=None, data=None, error=TaskFailure("PERMANENT_ERROR", message))


def not_storable(error: Exception) -> str:
    return f"the result is no plain data: {safe_text(error)}"


TOO_LARGE = "the result is larger than this orchestrator takes; store it somewhere and return where"


# -- sending by requests -----------------------------------------------------------------------------


class Request(Protocol):
    """Sends a request and returns an answer that leaves the session intact; raises SessionEnded otherwise."""

    async def __call__(
        self, method: str, path: str, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> Reply: ...


class ResultSender:
    """Sends progress and results of one session. A result is sent after all progress of its attempt."""

    def __init__(self, request: Request, session: WorkerSession, runtime: WorkerRuntime) -> None:
        self._request = request
        self._session = session
        self._runtime = runtime
        self._results: asyncio.Queue[RunningTask] = asyncio.Queue()
        #: Attempt → its last progress that is not sent yet; and the attempt whose progress is being sent.
        self._progress: dict[str, dict[str, Any]] = {}
        self._has_progress = asyncio.Event()
        self._sending_progress = asyncio.Lock()
        self._sending_now = ""
        #: Attempts whose result was sent back, and which have another result now.
        self._sent_back: set[str] = set()

    def loops(self) -> "list[Coroutine[Any, Any, None]]":
        """What has to run for as long as the session does."""
        return [self._send_all_progress(), *(self._send_results() for _ in range(_SENDERS))]

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        """Send it soon. Of several that wait the last one is sent, with the last checkpoint."""
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

    def finished(self, running_task: RunningTask) -> None:
        """Send the result. It is kept until the orchestrator has acknowledged it."""
        self._results.put_nowait(running_task)

    async def _send_all_progress(self) -> None:
        while True:
            await self._has_progress.wait()
            self._has_progress.clear()
            for attempt_id in list(self._progress):
                await self._send_progress(attempt_id)

    async def _send_progress(self, attempt_id: str) -> None:
        """Returns when all progress of this attempt is sent, in its order."""
        if attempt_id != self._sending_now and attempt_id not in self._progress:
            return
        async with self._sending_progress:
            if (event := self._progress.pop(attempt_id, None)) is not None:
                self._sending_now = attempt_id
                await self._request("POST", "/_worker/events", event)
                self._sending_now = ""

    async def _send_results(self) -> None:
        while True:
            running_task = await self._results.get()
            # First the progress: a failed attempt leaves its checkpoint to the next one.
            await self._send_progress(running_task.attempt_id)
            try:
                reply = await self._request("POST", "/_worker/tasks/result", self._body_of(running_task))
            except RecursionError as error:  # nested too deeply to be signed
                self._replace(running_task, not_storable(error))
                continue
            if reply.status == 200:
                self._runtime.task_runner.release(running_task.attempt_id)
            else:
                self._on_refused(running_task, reply)

    def _on_refused(self, running_task: RunningTask, reply: Reply) -> None:
        """A result that is wrong becomes a failure; otherwise the job would wait for it in vain."""
        status, text = reply.status, safe_text(reply.body.decode(errors="replace"))[:300]
        if status not in _RESULT_IS_WRONG:
            raise SessionEnded(f"HTTP {status} for a result: {text}")
        if running_task.attempt_id in self._sent_back:
            log.error("result of %s: HTTP %s %s", running_task.attempt_id, status, text)
            self._runtime.task_runner.release(running_task.attempt_id)
            return
        self._sent_back.add(running_task.attempt_id)
        message = f"the orchestrator does not take the result: HTTP {status} {text}"
        self._replace(running_task, TOO_LARGE if status == 413 else message)

    def _replace(self, running_task: RunningTask, message: str) -> None:
        """Send a failure in place of the result."""
        assert running_task.result is not None
        running_task.result = failure_instead_of(running_task.result, message)
        self._results.put_nowait(running_task)

    def _body_of(self, running_task: RunningTask) -> dict[str, Any]:
        result = running_task.result
        assert result is not None
        body = self._members_of(result)
        try:
            _encode(body)
        except Exception as error:  # noqa: BLE001  # encoding calls the user's own objects
            return self._members_of(failure_instead_of(result, not_storable(error)))
        return body

    def _members_of(self, result: TaskResult) -> dict[str, Any]:
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
        return body
