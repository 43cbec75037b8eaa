"""PollingTransport: tasks and results by plain HTTP requests. RoundRobinPoller: one worker that polls several orchestrators."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from ...config import WorkerConfig
from ...serialization import safe_text
from ...workers.protocol.frames import TaskFrame
from ..http import Reply, strings_in
from ..registration import WorkerSession
from ..running_task import RunningTask
from .base import RegistrationRejected, SessionEnded, WorkerIdTaken, WorkerRuntime
from .results import ResultSender

log = logging.getLogger("regista.worker")

#: How much longer than the orchestrator the worker waits for an answer.
_ANSWER_S = 10.0
#: A poll of RoundRobinPoller waits so long for a task; so long where another orchestrator has tasks, and then only so often.
_ROUND_S = 1.0
_BRIEF_ROUND_S = 0.1
#: The pause after an answer that cannot be decoded.
_INVALID_ANSWER_S = 1.0
#: An empty answer sooner than this did not wait for a task. The pauses after such answers double from the first to the last.
_NO_WAIT_S = 0.5
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 1.0

_decode = msgspec.json.decode


class PollingTransport:
    """Registers nothing, but keeps a session alive by heartbeats, sends results, and polls where it `takes_tasks`.

    Without `takes_tasks` it takes tasks only where `poll` is called from outside.
    """

    def __init__(
        self, session: WorkerSession, runtime: WorkerRuntime, config: WorkerConfig, *, takes_tasks: bool
    ) -> None:
        self.takes_tasks = takes_tasks
        self.is_draining = False
        self._session = session
        self._runtime = runtime
        self._heartbeat_s = min(config.heartbeat_interval_s, session.lease_s / 3)
        self._poll_s = config.poll_timeout_s
        self._sender = ResultSender(self._request, session, runtime)
        self._empty_answers = 0
        self._slot_freed = asyncio.Event()
        self._heartbeat_now = asyncio.Event()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._path = f"/_worker/workers/{session.worker_id}"

    async def run(self, on_connected: Callable[["PollingTransport"], None]) -> None:
        """Send heartbeats and results, and poll. Raises what ended the session."""
        on_connected(self)
        self._runtime.resend(self._session.destination, self)
        loops = [self._send_heartbeats(), *self._sender.loops()]
        if self.takes_tasks:
            loops.append(self._poll_forever())
        tasks = [asyncio.get_running_loop().create_task(each, name="polling") for each in loops]
        try:
            done, _ = await asyncio.wait([*tasks, self._ended], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end(SessionEnded("the worker polls no more"))
            self._ended.exception()

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def leave(self) -> None:
        """Hand back what the worker still holds, and end the session."""
        try:
            await self._patch({"status": "offline", "current_tasks": []})
        except (aiohttp.ClientError, OSError, TimeoutError, SessionEnded, RegistrationRejected):
            pass  # the lease will expire
        self._end(SessionEnded("the worker has left"))

    @property
    def sends_large_result(self) -> bool:
        """A large body is being sent; another transport would have to begin again with it."""
        return self._session.http.large_uploads > 0

    # -- tasks -----------------------------------------------------------------------------------

    async def _poll_forever(self) -> None:
        while True:
            self._slot_freed.clear()
            free = self._runtime.task_runner.free
            if free < 1 or self.is_draining:
                await self._slot_freed.wait()
            else:
                self._runtime.task_runner.accept(
                    await self._poll(free, self._poll_s), self._session.destination
                )

    async def poll(self, limit: int, timeout_s: float) -> int:
        """Poll once, and begin the tasks that were given; returns how many. What fails ends the transport."""
        try:
            offers = await self._poll(limit, timeout_s)
        except Exception as error:  # noqa: BLE001  # raised again by `run`
            self._end(error)
            return 0
        self._runtime.task_runner.accept(offers, self._session.destination)
        return len(offers)

    async def _poll(self, limit: int, timeout_s: float) -> list[TaskFrame]:
        params = {
            "timeout": f"{timeout_s:g}",
            "limit": str(limit),
            "session": str(self._session.number),
            "incarnation": self._runtime.incarnation,
        }
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await self._request("GET", f"{self._path}/tasks/next", params=params)
        if reply.status not in (200, 204):
            text = safe_text(reply.body.decode(errors="replace"))[:300]
            raise SessionEnded(f"HTTP {reply.status} for a poll: {text}")
        offers = [] if reply.status == 204 else await self._read_offers(reply.body)
        waited = loop.time() - began > min(_NO_WAIT_S, timeout_s / 2)
        self._empty_answers = 0 if offers or waited else self._empty_answers + 1
        if self._empty_answers:  # an orchestrator that does not wait must not be asked without a pause
            await asyncio.sleep(min(_LAST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._empty_answers, 10)))
        return offers

    async def _read_offers(self, body: bytes) -> list[TaskFrame]:
        try:
            found = _decode(body)
            return [_offer(task) for task in found.get("tasks", [found])]
        except (
            msgspec.MsgspecError,
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            OverflowError,
        ) as error:
            log.error("invalid task from the orchestrator: %s", safe_text(error))
            await asyncio.sleep(_INVALID_ANSWER_S)
            return []

    # -- heartbeats ------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        reported: tuple[str, ...] | None = None
        while True:
            hot = self._runtime.hot()
            body: dict[str, Any] = {
                # The limit of each poll says how many tasks the worker takes; "busy" would stop all of them.
                "status": "draining" if self.is_draining else "idle",
                "current_tasks": self._runtime.held(self._session.destination),
            }
            if hot != reported:
                body["hot_skills"] = list(hot)
                reported = hot
            answer = await self._patch(body)
            self._runtime.task_runner.cancel(strings_in(answer.get("cancel_task_ids")))
            if answer.get("require_full_sync") or answer.get("status") == "unknown_worker":
                raise SessionEnded("the orchestrator does not know this worker any more")
            await self._wait_for_heartbeat()

    async def _wait_for_heartbeat(self) -> None:
        self._heartbeat_now.clear()
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._heartbeat_now.wait()
        except TimeoutError:
            pass

    async def _patch(self, body: dict[str, Any]) -> dict[str, Any]:
        body |= {"worker_id": self._session.worker_id, "session": self._session.number}
        body["incarnation"] = self._runtime.incarnation
        return (await self._request("PATCH", self._path, body)).json

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> Reply:
        """As `OrchestratorHttp.request`; raises SessionEnded or RegistrationRejected for answers that end the session."""
        reply = await self._session.http.request(method, path, body, params, self._poll_s + _ANSWER_S)
        if reply.status in (401, 403):
            raise RegistrationRejected(safe_text(reply.body.decode(errors="replace"))[:500])
        if reply.status in (404, 409) and method != "POST":
            other = reply.json.get("displaced_by")
            if isinstance(other, str) and other:
                raise WorkerIdTaken(safe_text(other))
            raise SessionEnded("the orchestrator does not know this worker any more")
        if reply.status >= 500:
            raise SessionEnded(f"HTTP {reply.status}")
        return reply

    # -- WorkerTransport -------------------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        """The next heartbeat lists it."""

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        self._sender.progress(running_task, value, message, checkpoint)

    def finished(self, running_task: RunningTask) -> None:
        self._sender.finished(running_task)
        self._slot_freed.set()

    def drain(self, on: bool) -> None:
        """Stop polling, or go on, and tell the orchestrator with a heartbeat."""
        self.is_draining = on
        self._slot_freed.set()
        self._heartbeat_now.set()


class RoundRobinPoller:
    """Polls several orchestrators in turn, by smooth weighted round robin, one poll at a time.

    The limit of each poll is the number of free slots, so the worker never takes more tasks than it can run.
    """

    def __init__(
        self,
        transports: Callable[[], Sequence[tuple[PollingTransport, int]]],
        free_slots: Callable[[], int],
    ) -> None:
        #: Those that are connected, each with its weight.
        self._transports = transports
        self._free_slots = free_slots
        self._turns: dict[PollingTransport, int] = defaultdict(int)
        #: Transport → when it was polled in vain, by the loop's time; not there while its polls give tasks.
        self._empty_at: dict[PollingTransport, float] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """A slot is free, or an orchestrator has come."""
        self._wake.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            free = self._free_slots()
            transport = None if free < 1 else self._next(loop.time())
            if transport is None:
                await self._wake.wait()
                continue
            timeout_s = (
                _BRIEF_ROUND_S if self._turns.keys() - self._empty_at.keys() - {transport} else _ROUND_S
            )
            if await transport.poll(free, timeout_s):
                self._empty_at.pop(transport, None)
            else:
                self._empty_at[transport] = loop.time()

    def _next(self, now: float) -> PollingTransport | None:
        """The next one by weight. While one has tasks, those without are asked only now and then."""
        weights = {one: weight for one, weight in self._transports() if not one.is_draining}
        self._turns = defaultdict(int, {one: self._turns[one] for one in weights})
        self._empty_at = {one: at for one, at in self._empty_at.items() if one in weights}
        if weights.keys() - self._empty_at.keys():
            weights = {
                one: weight
                for one, weight in weights.items()
                if now - self._empty_at.get(one, -_ROUND_S) >= _ROUND_S
            }
        if not weights:
            return None
        for one, weight in weights.items():
            self._turns[one] += weight
        chosen = max(weights, key=self._turns.__getitem__)
        self._turns[chosen] -= sum(weights.values())
        return chosen


def _offer(task: dict[str, Any]) -> TaskFrame:
    """A task as an offer. Members that an older orchestrator leaves out follow from the others."""
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
