"""PollingTransport: the worker's end of the HTTP protocol, where a stream cannot be had."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import aiohttp
import msgspec

from ...config import WorkerConfig
from ...serialization import safe_text
from ...workers.protocol.frames import TaskFrame
from ..credentials import strings_in
from ..task_runner import RunningTask
from .base import RegistrationRejected, SessionEnded, WorkerIdTaken, WorkerRuntime, WorkerSession
from .results import ResultSender, catch_up

log = logging.getLogger("regista.worker")

#: How much longer than the orchestrator we wait for an answer.
_PATIENCE_S = 10.0
#: Where slots are shared among orchestrators, a poll must not keep them for long.
_SHARED_POLL_S = 2.0
#: The pause after an answer that makes no sense.
_ODD_PAUSE_S = 1.0
#: Who answers an empty poll sooner than this did not wait; the pauses after that are doubled from the first to the last.
_NO_WAIT_S = 0.5
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 1.0
#: A body larger than this takes its time, and so much more of it for each further byte: 25 kB a second.
_LARGE = 256 * 1024
_S_PER_BYTE = 1 / 25_000

#: The pause where an orchestrator that was asked too often says none of its own, and the longest.
_LATER_S, _MUCH_LATER_S = 1.0, 30.0

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class PollingTransport:
    """One conversation by requests. `run` ends it by raising what happened."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        session: WorkerSession,
        runtime: WorkerRuntime,
        weight: int,
        config: WorkerConfig,
    ) -> None:
        self._http = http
        self._session = session
        self._runtime = runtime
        #: Its share of the free slots.
        self.weight = weight
        self._beat_s = min(config.heartbeat_interval_s, session.lease_s / 3)
        shared = runtime.slots is not None
        self._poll_s = min(config.poll_timeout_s, _SHARED_POLL_S) if shared else config.poll_timeout_s
        self._delivery = ResultSender(self._request, session, runtime)
        self._large = 0
        self._hasty = 0
        self._freed = asyncio.Event()
        self._ended = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._asked_back = 0
        self._draining = False
        self._worker_url = f"{session.url}/_worker/workers/{session.worker_id}"

    # -- life ------------------------------------------------------------------------------------

    async def run(self, on_welcome: Callable[["PollingTransport"], None]) -> None:
        """Poll, beat and deliver until one of them finds that it is over."""
        if self._runtime.slots is not None:
            self._runtime.slots.join(self)
        on_welcome(self)
        catch_up(self._runtime, self._session.destination, self)
        chores = [self._poll_on(), self._beat_on(), self._end(), *self._delivery.chores()]
        tasks = [asyncio.get_running_loop().create_task(chore, name="polling") for chore in chores]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if self._runtime.slots is not None:
                self._runtime.slots.leave(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Hand back what we hold."""
        try:
            await self._patch({"status": "offline", "current_tasks": []})
        except (aiohttp.ClientError, OSError, TimeoutError, SessionEnded, RegistrationRejected):
            pass  # the lease will tell
        self._ended.set()

    @property
    def sends_much(self) -> bool:
        """A large body is on its way, and would have to begin anew with another conversation."""
        return self._large > 0

    async def _end(self) -> None:
        await self._ended.wait()
        raise SessionEnded("we said goodbye")

    # -- tasks -----------------------------------------------------------------------------------

    async def _poll_on(self) -> None:
        while True:
            self._freed.clear()
            free = self._free()
            if free < 1 or self._draining:
                self._give_back()
                await self._freed.wait()
                continue
            offers = await self._poll(free)
            if self._runtime.slots is not None:
                self._runtime.slots.spent(self, len(offers))
            self._runtime.task_runner.accept(offers, self._session.destination)
            self._give_back()

    def _give_back(self) -> None:
        """Between two polls nobody can offer anything: what others asked for is really unused."""
        if self._asked_back and self._runtime.slots is not None:
            some, self._asked_back = min(self._asked_back, self._free()), 0
            self._runtime.slots.returned(self, some)

    def _free(self) -> int:
        slots = self._runtime.slots
        return slots.credit_of(self) if slots else self._runtime.task_runner.free

    async def _poll(self, limit: int) -> list[TaskFrame]:
        asked = {"timeout": f"{self._poll_s:g}", "limit": str(limit), "session": str(self._session.number)}
        asked["incarnation"] = self._runtime.incarnation
        loop = asyncio.get_running_loop()
        began = loop.time()
        status, body = await self._request("GET", f"{self._worker_url}/tasks/next", params=asked)
        if status not in (200, 204):
            raise SessionEnded(f"HTTP {status} for a poll: {safe_text(body.decode(errors='replace'))[:300]}")
        offers = [] if status == 204 else await self._read_offers(body)
        self._hasty = 0 if offers or loop.time() - began > _NO_WAIT_S else self._hasty + 1
        if self._hasty:  # whoever does not wait for tasks must not make us ask as fast as we can
            await asyncio.sleep(min(_LAST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._hasty, 10)))
        return offers

    async def _read_offers(self, body: bytes) -> list[TaskFrame]:
        try:
            found = _decode(body)
            return [_offer(task) for task in found.get("tasks", [found])]
        except (
            msgspec.MsgspecError,
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
            OverflowError,
        ) as error:
            log.error("the orchestrator gave a task that makes no sense: %s", safe_text(error))
            await asyncio.sleep(_ODD_PAUSE_S)
            return []

    # -- signs of life ---------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        told: tuple[str, ...] | None = None
        while True:
            hot = self._runtime.hot()
            body: dict[str, Any] = {
                # How much we can do is said by the limit of each poll; busy would mean: nothing at all.
                "status": "draining" if self._draining else "idle",
                "current_tasks": self._runtime.held(self._session.destination),
            }
            if hot != told:
                body["hot_skills"] = list(hot)
                told = hot
            answer = await self._patch(body)
            self._runtime.task_runner.cancel(strings_in(answer.get("cancel_task_ids")))
            if answer.get("require_full_sync") or answer.get("status") == "unknown_worker":
                raise SessionEnded("the orchestrator does not know us any more")
            await self._pause()

    async def _pause(self) -> None:
        self._beat_now.clear()
        try:
            async with asyncio.timeout(self._beat_s):
                await self._beat_now.wait()
        except TimeoutError:
            pass

    async def _patch(self, body: dict[str, Any]) -> dict[str, Any]:
        body |= {"worker_id": self._session.worker_id, "session": self._session.number}
        body["incarnation"] = self._runtime.incarnation
        _, answer = await self._request("PATCH", self._worker_url, body)
        try:
            found = _decode(answer)
        except msgspec.MsgspecError:
            return {}
        return found if isinstance(found, dict) else {}

    # -- requests --------------------------------------------------------------------------------

    async def _request(
        self, method: str, url: str, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The answer. RegistrationRejected, SessionEnded or a ClientError where there is none that counts.

        After a 401 once more, with what the wallet has then: a login may just have been over.
        """
        token = self._session.credentials.token
        try:
            return await self._try(method, url, body, params)
        except RegistrationRejected:
            if not await self._session.credentials.renew(self._http, self._session.url, token):
                raise
            return await self._try(method, url, body, params)

    async def _try(
        self, method: str, url: str, body: dict[str, Any] | None, params: dict[str, str] | None
    ) -> tuple[int, bytes]:
        """As `_request`. Asked too often, nothing was lost by it: the conversation goes on where it was."""
        while True:
            written = None if body is None else _encode(self._session.credentials.sign_body(body))
            large = written is not None and len(written) > _LARGE
            self._large += large
            try:
                status, text, pause_s = await self._ask(method, url, written, params)
            finally:
                self._large -= large
            if status != 429:
                return status, text
            await asyncio.sleep(pause_s)

    async def _ask(
        self, method: str, url: str, body: bytes | None, params: dict[str, str] | None
    ) -> tuple[int, bytes, float]:
        headers, data, within_s = dict(self._session.headers), None, self._poll_s + _PATIENCE_S
        if body is not None:
            data = BytesIO(body)
            headers["Content-Type"] = "application/json"
            within_s += len(body) * _S_PER_BYTE
        timeout = aiohttp.ClientTimeout(total=within_s)
        async with self._http.request(
            method, url, data=data, params=params, headers=headers, timeout=timeout
        ) as answer:
            text = await answer.read()
            if answer.status in (401, 403):
                raise RegistrationRejected(safe_text(text.decode(errors="replace"))[:500])
            if answer.status in (404, 409) and method != "POST":
                raise _forgotten(text)
            if answer.status >= 500:
                raise SessionEnded(f"HTTP {answer.status}")
            return answer.status, text, _seconds(answer.headers.get("Retry-After", ""))

    # -- what the performer says -----------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        """The next heartbeat lists it."""

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        self._delivery.progress(running_task, value, message, checkpoint)

    def finished(self, running_task: RunningTask) -> None:
        self._delivery.finished(running_task)
        self._freed.set()

    def grant(self, more: int) -> None:
        self._freed.set()

    def ask_back(self, some: int) -> None:
        """Answered after the poll that is open; it is short where slots are shared."""
        self._asked_back = some
        self._freed.set()

    def drain(self, on: bool) -> None:
        """No more polls, and the orchestrator is told."""
        self._draining = on
        self._freed.set()
        self._beat_now.set()


def _offer(task: dict[str, Any]) -> TaskFrame:
    """A wire task; members that an older orchestrator leaves out follow from the others."""
    deadline = task.get("deadline")
    return TaskFrame(
        attempt_id=task["task_id"],
        id=task.get("stable_task_id") or task["task_id"],
        job_id=task["job_id"],
        type=task["type"],
        params=task.get("params") or {},
        attempt=task.get("attempt") or 1,
        checkpoint=task.get("checkpoint"),
        deadline=None if deadline is None else datetime.fromtimestamp(deadline, UTC),
        priority=task.get("priority") or 0.0,
        tracing_context=task.get("tracing_context") or {},
    )


def _seconds(text: str) -> float:
    """A Retry-After, within reason."""
    return min(max(float(text), _LATER_S), _MUCH_LATER_S) if text.isascii() and text.isdigit() else _LATER_S


def _forgotten(answer: bytes) -> SessionEnded:
    """We must register again; unless another worker has our id, which the answer says then."""
    try:
        found = _decode(answer)
    except msgspec.MsgspecError:
        found = None
    rival = found.get("displaced_by") if isinstance(found, dict) else None
    if isinstance(rival, str) and rival:
        return WorkerIdTaken(safe_text(rival))
    return SessionEnded("the orchestrator does not know us any more")
