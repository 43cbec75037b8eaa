"""Actors of the fuzz: workers over HTTP, over both WebSockets and over bare sockets, some of them mad."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import msgspec

from regista.model import TaskResult
from regista.workers.protocol import frames
from tests.fuzz.mutations import Chance

#: Nothing that is asked for may take longer; polls wait for a fraction of it.
PATIENCE_S = 10.0
TOKENS = {"CLIENT_TOKEN": "fuzz-client", "WORKER_TOKEN": "fuzz-worker"}
SKILL = "work"


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


class Stage:
    """The server under test, and what all actors note down."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.seed = seed
        #: (what, mode, answer) → how often
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.faults: list[str] = []
        self.ended = False

    def note(self, what: str, mode: str, answer: object) -> None:
        self.counts[what, mode, str(answer)] += 1
        if isinstance(answer, int) and answer >= 500:
            self.faults.append(f"{what} ({mode}): {answer}")

    async def play(self, seconds: float) -> None:
        """All actors at once, for so long."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(self.url, timeout=timeout) as http:
            actors = [kind(self, http, number) for number, kind in enumerate(3 * KINDS)]
            tasks = [asyncio.create_task(actor.live()) for actor in actors]
            await asyncio.sleep(seconds)
            self.ended = True
            done, stuck = await asyncio.wait(tasks, timeout=3 * PATIENCE_S)
            for task in stuck:
                task.cancel()
            self.faults += [f"stuck: {task.get_name()}" for task in stuck]
            self.faults += [f"an actor failed: {task.exception()!r}" for task in done if task.exception()]


class Actor:
    """One connection's worth of madness: it does something again and again until the play ends."""

    def __init__(self, stage: Stage, http: aiohttp.ClientSession, number: int) -> None:
        self.stage = stage
        self.http = http
        self.chance = Chance(f"{stage.seed}-{type(self).__name__}-{number}")
        self.name = f"{type(self).__name__.lower()}-{number}"

    async def live(self) -> None:
        while not self.stage.ended:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.act()
            except TimeoutError:
                self.stage.faults.append(f"{self.name}: no answer within {PATIENCE_S:g} s")
            except (aiohttp.ClientError, ConnectionError, ValueError) as error:
                # The server may hang up on nonsense, and some of it cannot even be sent.
                self.stage.note(self.name.partition("-")[0], "any", type(error).__name__)

    async def act(self) -> None:
        raise NotImplementedError

    async def ask(
        self, what: str, mode: str, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Any:
        async with self.http.request(method, path, data=body, headers=headers) as answer:
            text = await answer.read()
            self.stage.note(what, mode, answer.status)
            return answer.status, text

    def headers(self, mode: str) -> dict[str, str]:
        token = TOKENS["WORKER_TOKEN"]
        if mode != "valid" and self.chance.random() < 0.15:
            token = self.chance.choice(["", "wrong", "fuzz-client", "é", "x" * 500])
        return {"X-Worker-Token": token}


class Client(Actor):
    """Submits work, so that there is something to do; looks at it, cancels it."""

    async def act(self) -> None:
        mode, headers = self.chance.mode(), {"X-Client-Token": TOKENS["CLIENT_TOKEN"]}
        order = {"blueprint": SKILL, "input": {"n": self.chance.random()}, "priority": self.chance.random()}
        body = self.chance.written(mode, order, json_bytes)
        status, text = await self.ask("submit", mode, "POST", "/api/v1/jobs", body, **headers)
        if status == 202 and self.chance.random() < 0.3:
            path = f"/api/v1/jobs/{json.loads(text)['id']}"
            await self.ask("look", mode, "GET", path, None, **headers)
            if self.chance.random() < 0.3:
                await self.ask("cancel", mode, "POST", f"{path}/cancel", None, **headers)
        await asyncio.sleep(self.chance.uniform(0, 0.1))


class Poller(Actor):
    """A worker over HTTP, whose every message may be spoiled."""

    def __init__(self, stage: Stage, http: aiohttp.ClientSession, number: int) -> None:
        super().__init__(stage, http, number)
        self.tasks: list[dict[str, Any]] = []

    async def act(self) -> None:
        if not self.tasks and self.chance.random() < 0.5:
            await self.register("valid")
            await self.poll("valid")
        doing: list[Callable[[str], Coroutine[Any, Any, None]]] = [
            self.register, self.beat, self.poll, self.result, self.event, self.token,
        ]  # fmt: skip
        await self.chance.choices(doing, (2, 3, 3, 6, 3, 1))[0](self.chance.mode())

    async def send(
        self, what: str, mode: str, method: str, path: str, message: dict[str, Any]
    ) -> tuple[int, bytes]:
        headers = self.headers(mode)
        if mode != "valid" and self.chance.random() < 0.2:
            headers |= {"X-Worker-ID": str(self.chance.odd())[:50].encode("ascii", "replace").decode()}
            headers |= {"Content-Encoding": self.chance.choice(["gzip", "zstd", "br", "identity", "x"])}
            headers = {
                name: value.replace("\r", "").replace("\n", "").replace("\0", "")
                for name, value in headers.items()
            }
        body = self.chance.written(mode, message, json_bytes)
        status, text = await self.ask(what, mode, method, path, body, **headers)
        return status, text

    async def register(self, mode: str) -> None:
        message = {
            "worker_id": self.name,
            "worker_type": "fuzz",
            "supported_skills": [SKILL],
            "resources": {"max_concurrent_tasks": 4, "cpu_cores": 2, "ram_gb": 1.5, "properties": {}},
            "current_tasks": [task["task_id"] for task in self.tasks],
            "labels": {"a": "b"},
        }
        await self.send("register", mode, "POST", "/_worker/workers/register", message)

    async def beat(self, mode: str) -> None:
        message = {"status": "idle", "current_tasks": [task["task_id"] for task in self.tasks], "load": 0.5}
        name = self.name if mode != "garbage" else "%2e%2e%2f%00"
        await self.send("beat", mode, "PATCH", f"/_worker/workers/{name}", message)

    async def poll(self, mode: str) -> None:
        wait = self.chance.choice(["0", "0.1", "0.2"]) if mode == "valid" else str(self.chance.odd())[:40]
        params = (
            {"timeout": wait, "limit": "2"}
            if mode == "valid"
            else {"timeout": wait, "limit": str(self.chance.odd())[:40]}
        )
        if mode != "valid":
            params["available_skills"] = str(self.chance.odd())[:40]
        path = f"/_worker/workers/{self.name}/tasks/next"
        async with self.http.get(path, params=params, headers=self.headers(mode)) as answer:
            body = await answer.read()
            self.stage.note("poll", mode, answer.status)
        if answer.status == 200:
            found = json.loads(body)
            self.tasks += found.get("tasks", [found])

    async def result(self, mode: str) -> None:
        task = self.chance.choice(self.tasks) if self.tasks else {"job_id": "none", "task_id": "none_1_0-1"}
        message = {
            "worker_id": self.name,
            "job_id": task["job_id"],
            "task_id": task["task_id"],
            "status": self.chance.choice(["success", "failure", "cancelled"]),
            "data": {"n": self.chance.odd() if mode != "valid" else 1},
        }
        if message["status"] == "failure":
            message["error"] = {"code": "TRANSIENT_ERROR", "message": "as it happens"}
        status, text = await self.send("result", mode, "POST", "/_worker/tasks/result", message)
        if status == 200:
            self.stage.note("result", mode, json.loads(text)["status"])
            if mode == "valid":
                self.tasks = [one for one in self.tasks if one["task_id"] != task["task_id"]]

    async def event(self, mode: str) -> None:
        task = self.chance.choice(self.tasks) if self.tasks else {"job_id": "none", "task_id": "none_1_0-1"}
        message = {
            "event_id": "e1",
            "worker_id": self.name,
            "event_type": self.chance.choice(["progress", "greeting"]),
            "payload": {"progress": 0.5, "message": "half", "checkpoint": {"at": 1}},
            "target_task_id": task["task_id"],
            "target_job_id": task["job_id"],
        }
        await self.send("event", mode, "POST", "/_worker/events", message)

    async def token(self, mode: str) -> None:
        path = self.chance.choice(["/_worker/auth/token", "/_worker/auth/token/refresh"])
        message = {"worker_id": self.name, "refresh_token": "none", "request_id": "r1"}
        await self.send("token", mode, "POST", path, message)


class Commands(Actor):
    """The command socket of stock workers."""

    async def act(self) -> None:
        path = self.chance.choice(["/_worker/ws", f"/_worker/ws/{self.name}", "/_worker/ws/%00"])
        headers = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
        async with self.http.ws_connect(path, headers=headers) as ws:
            self.stage.note("command socket", "valid", "open")
            for _ in range(self.chance.randrange(12)):
                mode = self.chance.mode()
                event = {
                    "event_type": "progress",
                    "worker_id": self.name,
                    "target_task_id": "x_1_0-1",
                    "payload": {"progress": 0.1},
                }
                body = self.chance.written(mode, event, json_bytes)
                await (
                    ws.send_bytes(body)
                    if self.chance.random() < 0.5
                    else ws.send_str(body.decode(errors="replace"))
                )
                self.stage.note("command socket", mode, "sent")
            if self.chance.random() < 0.5:
                await ws.close(code=self.chance.choice([1000, 1001, 4000]))


class Streamer(Actor):
    """Our own stream: registers, says hello, takes offers, and goes mad at some point."""

    async def act(self) -> None:
        headers = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
        said = {
            "worker_id": self.name,
            "worker_type": "fuzz",
            "supported_skills": [SKILL],
            "resources": {"max_concurrent_tasks": 4},
        }
        status, text = await self.ask(
            "register", "valid", "POST", "/_worker/workers/register", json_bytes(said), **headers
        )
        if status != 200:
            return
        path = f"/_worker/ws/{self.name}"
        async with self.http.ws_connect(path, headers=headers, protocols=[frames.PROTOCOL]) as ws:
            await self.speak(ws, json.loads(text)["session"])

    async def speak(self, ws: aiohttp.ClientWebSocketResponse, session: int) -> None:
        mode = "valid" if self.chance.random() < 0.8 else self.chance.mode()
        await self.send(ws, mode, [frames.HelloFrame(session, [])])
        held: list[frames.TaskFrame] = []
        for _ in range(self.chance.randrange(1, 40)):
            for frame in await self.heard(ws):
                if isinstance(frame, frames.TaskFrame):
                    held.append(frame)
                self.stage.note("stream down", "valid", type(frame).__name__)
                if isinstance(frame, frames.AcksFrame):
                    self.stage.counts["stream result", "valid", "accepted"] += len(frame.accepted)
                    self.stage.counts["stream result", "valid", "refused"] += len(frame.refused)
            if ws.closed:
                self.stage.note("stream", "any", f"closed {ws.close_code}")
                return
            await self.send(
                ws, self.chance.choices(["valid", "mutated", "garbage"], (85, 10, 5))[0], self.words(held)
            )
        if self.chance.random() < 0.3 and ws.get_extra_info("socket") is not None:
            transport = ws._response.connection.transport if ws._response.connection else None
            if transport is not None:
                transport.abort()

    def words(self, held: list[frames.TaskFrame]) -> list[Any]:
        batch: list[Any] = [frames.HeartbeatFrame([one.attempt_id for one in held])]
        if held and self.chance.random() < 0.8:
            offer = held.pop()
            result = TaskResult(
                task_id=offer.attempt_id,
                job_id=offer.job_id,
                worker_id=self.name,
                status="success",
                data={"n": 1},
            )
            batch += [
                frames.StartedFrame([offer.attempt_id]),
                frames.ProgressFrame(offer.attempt_id, 0.5, "half"),
            ]
            batch += [frames.ResultFrame(result), frames.DrainFrame(False)]
        if self.chance.random() < 0.05:
            batch += [
                self.chance.choice(
                    [
                        frames.DrainFrame(True),
                        frames.DrainFrame(False),
                        frames.DrainFrame(True),
                        frames.LeaveFrame(),
                    ]
                )
            ]
        return batch

    async def send(self, ws: aiohttp.ClientWebSocketResponse, mode: str, batch: list[Any]) -> None:
        body = self.chance.written(mode, batch, frames.encode)
        if mode == "garbage" and self.chance.random() < 0.3:
            await ws.send_str("text")
        else:
            await ws.send_bytes(body)
        self.stage.note("stream up", mode, "sent")

    async def heard(self, ws: aiohttp.ClientWebSocketResponse) -> list[Any]:
        try:
            message = await ws.receive(timeout=0.05)
        except TimeoutError:
            return []
        if message.type is aiohttp.WSMsgType.BINARY:
            try:
                return frames.decode_to_worker(message.data)
            except msgspec.MsgspecError as error:
                self.stage.faults.append(f"the stream said something that is none: {error}")
        return []


class Socket(Actor):
    """Bytes on a bare socket: heads that are torn, WebSocket frames that are none, hanging up in the middle."""

    async def act(self) -> None:
        host, _, port = self.stage.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            mode = self.chance.mode()
            head = self.head(mode)
            writer.write(head)
            await writer.drain()
            if self.chance.random() < 0.5:
                writer.write(self.chance.bytes_of(300))
                await writer.drain()
            if self.chance.random() < 0.7:
                answer = await asyncio.wait_for(reader.read(4096), 0.3)
                self.note(mode, answer, head)
        except TimeoutError:
            self.stage.note("socket", mode, "waits for more")
        finally:
            writer.transport.abort()

    def head(self, mode: str) -> bytes:
        path = self.chance.choice(
            ["/_worker/ws/w", "/_worker/tasks/result", "/_public/status", "/api/v1/jobs"]
        )
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        lines = f"{self.chance.choice(['GET', 'POST', 'PATCH'])} {path} HTTP/1.1\r\nHost: x\r\nX-Worker-Token: fuzz-worker\r\n"
        body = (lines + (upgrade if "/ws/" in path else "") + "\r\n").encode()
        return (
            body
            if mode == "valid"
            else self.chance.torn(body)
            if mode == "mutated"
            else self.chance.bytes_of(500)
        )

    def note(self, mode: str, answer: bytes, head: bytes) -> None:
        status = (
            answer[9:12].decode(errors="replace")
            if answer.startswith(b"HTTP/1.")
            else "closed"
            if not answer
            else "?"
        )
        if status.startswith("5"):
            self.stage.faults.append(f"{head!r} → {answer!r}")
        self.stage.note("socket", mode, status)


KINDS: list[type[Actor]] = [Client, Poller, Poller, Commands, Streamer, Streamer, Socket]
