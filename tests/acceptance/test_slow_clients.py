"""Clients that read their responses slowly or not at all."""

import asyncio
import io
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
import uvloop

from regista.api.connection_guard import ConnectionGuards
from tests.acceptance.house import until
from tests.acceptance.serving import House, serving
from tests.acceptance.test_bad_input import head
from tests.support import one_task

#: More than the buffers of the system hold.
LARGE = "x" * 12_000_000


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as orchestrators run
        runner.run(main())


async def ask(house: House, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request from somebody who can hold little."""
    host, _, port = house.url.removeprefix("http://").partition(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    line.setblocking(False)
    await asyncio.get_running_loop().sock_connect(line, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=line, limit=65536)
    writer.write(sent)
    return reader, writer


async def large_job(house: House) -> str:
    """The path of a job that is a large answer."""
    body = io.BytesIO(msgspec.json.encode({"blueprint": "script", "input": {"text": LARGE}}))
    headers = {"X-Client-Token": "t-ada"}
    async with house.session.post(house.url + "/api/v1/jobs", data=body, headers=headers) as answer:
        return answer.headers["Location"]


def test_client_that_reads_nothing_of_a_large_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ConnectionGuards, "unread_timeout_s", 0.3)

    async def body(house: House) -> None:
        path = await large_job(house)
        with caplog.at_level(logging.DEBUG, "regista.api"):
            for more in ({}, {"Connection": "close"}):
                _, writer = await ask(house, head("GET", path, **more))
                await until(
                    lambda: "response_unread" in [getattr(one, "action", "") for one in caplog.records]
                )
                caplog.clear()
                writer.close()
        assert (await house.get("/_public/live")).status == 200

    run(body)


def test_client_that_reads_a_large_response_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionGuards, "unread_timeout_s", 0.5)

    async def body(house: House) -> None:
        path = await large_job(house)
        reader, writer = await ask(house, head("GET", path, Connection="close"))
        size = 0
        async with asyncio.timeout(8):
            while piece := await reader.read(65536):
                size += len(piece)
                await asyncio.sleep(0.01)
        writer.close()
        assert size > len(LARGE)

    run(body)
