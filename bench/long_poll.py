"""The oldest way to work with us, as bare as it can be: jobs by request, workers that poll, ends told by webhook.

Nothing but the standard library, so that who asks costs little beside who answers.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Line:
    """One connection that stays open, with one request on it at a time."""

    def __init__(self, port: int, token_header: str, token: str) -> None:
        self._port = port
        self._fixed = f"Host: x\r\n{token_header}: {token}\r\n"
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status, and what was said."""
        if self._ends is None:
            self._ends = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._ends
        raw = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n" if raw else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._fixed}{kind}\r\n".encode() + raw)
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        said = await reader.readexactly(int(found[1])) if found else b""
        return int(head.split(b" ", 2)[1]), json.loads(said) if said else None

    def close(self) -> None:
        """Hang up."""
        if self._ends is not None:
            self._ends[1].close()


class Sink:
    """Hears webhooks; whoever waits for a job is told."""

    def __init__(self) -> None:
        self._over: dict[str, asyncio.Future[None]] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """The URL at which it hears."""
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    def over(self, job_id: str) -> "asyncio.Future[None]":
        """Done once the end of this job was told."""
        return self._over.setdefault(job_id, asyncio.get_running_loop().create_future())

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                found = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
                said = json.loads(await reader.readexactly(int(found[1]) if found else 0))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                told = self.over(said["job_id"])
                if not told.done():
                    told.set_result(None)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def close(self) -> None:
        """Hear no more."""
        if self._server is not None:
            self._server.close()


async def perform(port: int, token: str, worker_id: str) -> None:
    """Register, and do one task after the other until cancelled."""
    polls, results = Line(port, "X-Worker-Token", token), Line(port, "X-Worker-Token", token)
    skills = [{"name": "noop", "type": "noop"}]
    me = {"worker_id": worker_id, "worker_type": "bench", "supported_skills": skills}
    status, said = await polls.ask("POST", "/_worker/workers/register", me)
    if status != 200:
        raise RuntimeError(f"expected to be registered, got {status}: {said}")
    try:
        while True:
            _, task = await polls.ask("GET", f"/_worker/workers/{worker_id}/tasks/next?timeout=30")
            if task:
                ids = {"job_id": task["job_id"], "task_id": task["task_id"], "worker_id": worker_id}
                await results.ask(
                    "POST", "/_worker/tasks/result", ids | {"status": "success", "data": {"n": 1}}
                )
    finally:
        polls.close()
        results.close()


async def order(port: int, token: str, path: str, numbers: Iterator[int], sink: Sink, hook: str) -> None:
    """Job after job: order one, wait until its end is told."""
    line = Line(port, "X-Client-Token", token)
    for number in numbers:
        status, said = await line.ask("POST", path, {"initial_data": {"n": number}, "webhook_url": hook})
        if status != 202:
            raise RuntimeError(f"expected 202, got {status}: {said}")
        await sink.over(said["job_id"])
    line.close()


async def work_off(
    port: int, client: str, worker: str, path: str, jobs: int, workers: int, at_once: int
) -> None:
    """So many jobs, so many at once, by so many workers of one task each."""
    sink = Sink()
    hook = await sink.open()
    crew = [asyncio.create_task(perform(port, worker, f"w-{n}")) for n in range(workers)]
    numbers = iter(range(jobs))
    await asyncio.gather(*(order(port, client, path, numbers, sink, hook) for _ in range(at_once)))
    for one in crew:
        one.cancel()
    await asyncio.gather(*crew, return_exceptions=True)
    sink.close()
