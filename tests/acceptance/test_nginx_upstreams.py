"""What of a request reaches an orchestrator, and how often: through a real nginx, with listeners in their place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.acceptance.nginx_kit import TOKENS, Nginx
from tests.ports import free_port


@asynccontextmanager
async def listening(answer: str) -> AsyncIterator[tuple[int, list[str]]]:
    """A port where each request is heard, and answered with this or, where that is nothing, hung up on."""
    heard: list[str] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                heard.append(head.decode())
                if not answer:
                    break
                writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], heard


@asynccontextmanager
async def nginx_before(folder: Path, *upstreams: int) -> AsyncIterator[Nginx]:
    """An nginx of one's own."""
    nginx = Nginx(folder / "nginx", upstreams)
    try:
        await asyncio.to_thread(nginx.start)
        yield nginx
    finally:
        await asyncio.to_thread(nginx.stop)


def test_nothing_that_is_forged_outside_reaches_an_orchestrator(tmp_path: Path) -> None:
    forged = {
        "X-Client-Cert-CN": "somebody-else",
        "X_Client_Cert_CN": "somebody-else",
        "X-Forwarded-Client-Cert": "somebody-else",
        "X-Forwarded-For": "10.0.0.1",
        "X-Real-IP": "10.0.0.1",
        "Forwarded": "for=10.0.0.1",
        "X-Forwarded-Proto": "http",
    }
    paths = ("/api/v1/jobs", "/api/v1/events", "/_worker/workers/register", "/_worker/ws/w")

    async def main() -> list[str]:
        async with (
            listening("200 OK") as (port, heard),
            nginx_before(tmp_path, port) as nginx,
            nginx.session(headers=forged) as caller,
        ):
            for path in paths:
                assert (await caller.ask("GET", path)).status == 200
        return heard

    heard = asyncio.run(main())

    assert len(heard) == len(paths)
    for head in heard:
        assert "somebody-else" not in head
        assert "10.0.0.1" not in head
        assert "X-Forwarded-For: 127.0.0.1\r\n" in head
        assert "X-Forwarded-Proto: https\r\n" in head
        assert f"X-Client-Token: {TOKENS['CLIENT_TOKEN']}\r\n" in head


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/_worker/workers/w"])
@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("POST", False), ("PATCH", False)])
async def test_only_what_may_be_done_twice_is_asked_again_elsewhere(
    tmp_path: Path, method: str, path: str, repeated: bool
) -> None:
    async with (
        listening("") as (dying, took),
        listening("200 OK") as (living, asked),
        nginx_before(tmp_path, dying, living) as nginx,
    ):
        statuses = []
        for worker in range(16):  # enough of them for both to be somebody's first choice
            async with nginx.session(headers={"X-Worker-ID": f"worker-{worker}"}) as caller:
                statuses.append((await caller.ask(method, path)).status)
        assert took
        if repeated:
            assert statuses == [200] * 16
        else:
            assert statuses.count(502) == len(took)
            assert len(took) + len(asked) == 16


async def test_what_nobody_can_have_taken_is_asked_elsewhere_whatever_it_is(tmp_path: Path) -> None:
    async with (
        listening("202 Accepted") as (living, asked),
        nginx_before(tmp_path, free_port(), living) as nginx,
        nginx.session() as caller,
    ):
        assert (await caller.ask("POST", "/api/v1/jobs", json={})).status == 202
        assert len(asked) == 1


async def test_whoever_hangs_up_is_hung_up_on_behind_it_too(tmp_path: Path) -> None:
    """Else a poll whose worker is gone would take the next task."""

    asked, gone = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with nginx_before(tmp_path, port) as nginx:
            async with nginx.session() as caller:
                poll = asyncio.create_task(caller.ask("GET", "/_worker/workers/w/tasks/next?timeout=30"))
                await asyncio.wait_for(asked.wait(), 4)
                poll.cancel()
            await asyncio.wait_for(gone.wait(), 2)


async def test_nobody_there_is_a_problem_that_says_when_to_try_again(tmp_path: Path) -> None:
    async with nginx_before(tmp_path, free_port()) as nginx, nginx.session() as caller:
        answer = await caller.ask("POST", "/api/v1/jobs", json={})
        assert (answer.status, answer.code) == (502, "no_orchestrator")
        assert answer.headers["Retry-After"] == "1"
        assert answer.headers["X-Frame-Options"] == "DENY"
