"""Delivery: what a polling worker tells of its tasks, by requests: how far they are, and how they went."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from ..serialization import safe_text
from .outgoing import no_plain_data, not_taken, too_large
from .performer import Performance
from .voice import Crew, Over, Session

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


class Delivery:
    """Progress and results of one conversation. Before a result is told, so is all that was said before it."""

    def __init__(self, request: Request, session: Session, crew: Crew) -> None:
        self._request = request
        self._session = session
        self._crew = crew
        self._results: asyncio.Queue[Performance] = asyncio.Queue()
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

    def progress(self, performance: Performance, value: float | None, message: str, checkpoint: Any) -> None:
        """An event; of those that wait the last one is told, with the last checkpoint."""
        old = self._progress.get(performance.attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old["payload"].get("checkpoint")
        payload = {"progress": value, "message": message, "checkpoint": checkpoint}
        self._progress[performance.attempt_id] = {
            "event_id": f"{performance.attempt_id}-{datetime.now(UTC).timestamp()}",
            "worker_id": self._session.worker_id,
            "origin_worker_id": self._session.worker_id,
            "event_type": "progress",
            "payload": {key: each for key, each in payload.items() if each is not None},
            "target_task_id": performance.attempt_id,
            "target_job_id": performance.job_id,
            "origin_task_id": performance.attempt_id,
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

    def finished(self, performance: Performance) -> None:
        """Send the result; it is kept until it was answered."""
        self._results.put_nowait(performance)

    async def _send_on(self) -> None:
        while True:
            performance = await self._results.get()
            await self._tell(performance.attempt_id)  # a failed attempt leaves its checkpoint to the next one
            try:
                status, answer = await self._request(
                    "POST", f"{self._session.url}/_worker/tasks/result", self._body_of(performance)
                )
            except RecursionError as error:  # so deep that it could just be looked at, and not be sent
                assert performance.result is not None
                performance.result = no_plain_data(performance.result, error)
                self._results.put_nowait(performance)
                continue
            if status == 200:
                self._crew.performer.forget(performance.attempt_id)
            else:
                self._was_sent_back(performance, status, safe_text(answer.decode(errors="replace"))[:300])

    def _was_sent_back(self, performance: Performance, status: int, told: str) -> None:
        """Where it is the result's own fault, that becomes the result; else it would be waited for in vain."""
        if status not in _AT_FAULT:
            raise Over(f"HTTP {status} for a result: {told}")
        if performance.attempt_id in self._sent_back:
            log.error("result of %s: HTTP %s %s", performance.attempt_id, status, told)
            self._crew.performer.forget(performance.attempt_id)
            return
        old = performance.result
        assert old is not None
        self._sent_back.add(performance.attempt_id)
        performance.result = too_large(old) if status == 413 else not_taken(old, f"HTTP {status} {told}")
        self._results.put_nowait(performance)

    def _body_of(self, performance: Performance) -> dict[str, Any]:
        result = performance.result
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
