"""Line: whole answers from one server, whatever happens to the connections in between."""

import asyncio
import contextlib
import gzip
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regista.wire.http_answer import BadAnswer
from regista.wire.http_connection import Cut
from regista.wire.http_line import Line, Place, Unheard, place_of
from tests.certificates import Authority

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Scripted:
    """A server that says these very bytes: for each connection a list of answers, after which it hangs up.

    None is an answer that does not come.
    """

    def __init__(self, *connections: list[bytes | None]) -> None:
        self.heard: list[bytes] = []
        self.connections = self.open = self.most = 0
        self.url = ""
        self._script = connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            for answer in self._script[min(self.connections, len(self._script)) - 1]:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or 0)
                self.heard.append(head + await reader.readexactly(length))
                if answer is None:
                    await reader.read()
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # who asked has hung up
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.open -= 1


@asynccontextmanager
async def scripted(
    *connections: list[bytes | None], tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Scripted]:
    told = Scripted(*connections)
    server = await asyncio.start_server(told.serve, "127.0.0.1", port, ssl=tls)
    async with server, asyncio.timeout(8):
        port = server.sockets[0].getsockname()[1]
        told.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"
        yield told
        while told.open:  # noqa: ASYNC110  # it hears of the end of a connection when it hears of it
            await asyncio.sleep(0.01)


@asynccontextmanager
async def line_to(url: str, **options: Any) -> AsyncIterator[Line]:
    place = place_of(url)
    assert place is not None
    line = Line(place, **options)
    try:
        yield line
    finally:
        await line.close()
        await line.close()  # twice is fine


async def ask(line: Line, timeout_s: float = 5.0, again: bool = False, body: bytes | None = None) -> bytes:
    return (await line.ask("POST" if body else "GET", "/x", "X: y\r\n", body, timeout_s, again))[1]


# -- addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place", "name"),
    [
        ("http://127.0.0.1:8080", Place("127.0.0.1", 8080, False, ""), "127.0.0.1:8080"),
        ("https://Example.com/a/b/", Place("example.com", 443, True, "/a/b"), "example.com"),
        ("http://[::1]:80", Place("::1", 80, False, ""), "[::1]"),
        ("https://[::1]:80/", Place("::1", 80, True, ""), "[::1]:80"),
    ],
)
def test_an_address_is_a_host_a_port_and_a_path(url: str, place: Place, name: str) -> None:
    assert place_of(url) == place
    assert place.name == name


@pytest.mark.parametrize(
    "url",
    [
        "http://ada:secret@host/",
        "http://host/?a=b",
        "http://host/#a",
        "ftp://host/",
        "host:8080",
        "http://",
        "http://host:port/",
        "http://host:99999/",
        "http://b\u00fccher.example/",
        "http://host/b\u00fccher",
        "http://host/a b",
        "http://[::1/",
        "http://[fe80::1%eth0]/",
    ],
)
def test_an_address_with_more_in_it_is_for_others(url: str) -> None:
    assert place_of(url) is None


# -- asking ------------------------------------------------------------------------------------------


async def test_requests_follow_one_another_on_one_connection() -> None:
    async with scripted([OK] * 4) as server, line_to(server.url + "/base") as line:
        assert [await ask(line, body=b"{}"), await ask(line), await ask(line)] == [b"ok"] * 3
        assert server.connections == 1
        host = server.url.removeprefix("http://").encode()
        json = b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        assert server.heard == [
            b"POST /base/x HTTP/1.1\r\nHost: " + host + b"\r\nX: y\r\n" + json,
            *[b"GET /base/x HTTP/1.1\r\nHost: " + host + b"\r\nX: y\r\n\r\n"] * 2,
        ]


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/\u00fc", ""])
async def test_a_path_that_is_not_quoted_is_not_sent(path: str) -> None:
    async with line_to("http://127.0.0.1:9") as line:
        with pytest.raises(ValueError, match="quoted"):
            await line.ask("GET", path, "", None, 1.0, False)


async def test_a_packed_answer_is_unpacked() -> None:
    packed = gzip.compress(b"ok" * 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with scripted([head + packed]) as server, line_to(server.url) as line:
        assert await ask(line) == b"ok" * 1000


async def test_a_large_answer_comes_whole_in_chunks_or_not() -> None:
    large = bytes(8_000_000)
    sized = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large) + large
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(piece), piece)
        for piece in [large[at : at + 999_999] for at in range(0, len(large), 999_999)]
    )
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with scripted([sized, chunked]) as server, line_to(server.url) as line:
        assert await ask(line) == large
        assert await ask(line) == large
        assert server.connections == 1


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    for answer in (closing, b"HTTP/1.1 200 OK\r\n\r\nok", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"):
        async with scripted([answer], [answer]) as server, line_to(server.url) as line:
            assert [await ask(line), await ask(line)] == [b"ok"] * 2
            assert server.connections == 2


async def test_what_was_closed_while_it_was_idle_is_noticed_before_anything_is_sent() -> None:
    async with scripted([OK], [OK]) as server, line_to(server.url) as line:
        await ask(line)
        await asyncio.sleep(0.05)
        assert await ask(line, again=False) == b"ok"
        assert (server.connections, len(server.heard)) == (2, 2)


async def test_a_used_connection_that_is_cut_without_a_word_is_made_again_where_that_is_safe() -> None:
    async with scripted([OK, b""], [OK]) as server, line_to(server.url) as line:
        await ask(line)
        assert await ask(line, again=True) == b"ok"
        assert (server.connections, len(server.heard)) == (2, 3)


async def test_a_used_connection_that_is_cut_is_an_error_where_twice_is_not_as_good_as_once() -> None:
    async with scripted([OK, b""], [OK]) as server, line_to(server.url) as line:
        await ask(line)
        with pytest.raises(Cut):
            await ask(line, again=False)
        assert len(server.heard) == 2


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200", OK[:-1]])
async def test_half_an_answer_is_an_error_and_nothing_is_sent_again(answer: bytes) -> None:
    async with scripted([OK, answer], [OK]) as server, line_to(server.url) as line:
        await ask(line)
        with pytest.raises(Cut):
            await ask(line, again=True)
        assert len(server.heard) == 2


async def test_a_new_connection_that_is_cut_is_an_error() -> None:
    async with scripted([b""]) as server, line_to(server.url) as line:
        with pytest.raises(Cut):
            await ask(line, again=True)
        assert server.connections == 1


async def test_nonsense_is_an_error_and_the_next_request_has_a_connection_of_its_own() -> None:
    async with scripted([b"SSH-2.0-x\r\n\r\n"], [OK]) as server, line_to(server.url) as line:
        with pytest.raises(BadAnswer):
            await ask(line)
        assert await ask(line) == b"ok"


async def test_an_answer_that_does_not_come_in_time_is_given_up_with_its_connection() -> None:
    async with scripted([None], [OK]) as server, line_to(server.url) as line:
        with pytest.raises(TimeoutError):
            await ask(line, timeout_s=0.1)
        assert await ask(line) == b"ok"
        assert server.connections == 2


async def test_a_call_that_is_cancelled_leaves_its_answer_to_nobody() -> None:
    async with scripted([OK, None], [OK]) as server, line_to(server.url) as line:
        await ask(line)
        asking = asyncio.ensure_future(ask(line))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await ask(line) == b"ok"
        assert server.connections == 2


async def test_closing_cuts_off_who_waits() -> None:
    async with scripted([None]) as server, line_to(server.url) as line:
        asking = asyncio.ensure_future(ask(line))
        await asyncio.sleep(0.05)
        await line.close()
        with pytest.raises(Cut):
            await asking


# -- connecting --------------------------------------------------------------------------------------


async def test_nobody_has_heard_us_where_nobody_listens_or_no_host_has_this_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with line_to(f"http://127.0.0.1:{taken.getsockname()[1]}") as line:
            with pytest.raises(Unheard) as refused:
                await ask(line)
            assert isinstance(refused.value.os_error, ConnectionRefusedError)
    for host in ("no-such-host.invalid", "no..host"):
        async with line_to(f"http://{host}") as line:
            with pytest.raises(Unheard):
                await ask(line)


async def test_a_connection_that_is_not_made_in_time_is_heard_by_nobody() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        with contextlib.ExitStack() as others:
            for _ in range(3):  # nobody takes these, and there is no room for more
                other = others.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(address)
            async with line_to(f"http://127.0.0.1:{address[1]}", connect_s=0.2) as line:
                began = time.monotonic()
                with pytest.raises(Unheard) as late:
                    await ask(line)
                assert isinstance(late.value.os_error, TimeoutError)
                assert time.monotonic() - began < 3


async def test_names_are_looked_up() -> None:
    async with scripted([OK]) as server, line_to(server.url.replace("127.0.0.1", "localhost")) as line:
        assert await ask(line) == b"ok"


async def test_no_more_than_so_many_are_on_their_way_and_the_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regista.wire.http_line._MOST", 3)
    async with scripted([OK] * 30) as server, line_to(server.url) as line:
        assert await asyncio.gather(*[ask(line) for _ in range(30)]) == [b"ok"] * 30
        assert server.most == server.connections == 3


async def test_a_turn_that_does_not_come_in_time_or_is_not_wanted_any_more_is_lost_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regista.wire.http_line._MOST", 1)
    async with scripted([None], [OK, OK]) as server, line_to(server.url) as line:
        first = asyncio.ensure_future(ask(line))
        await asyncio.sleep(0.05)
        cancelled = asyncio.ensure_future(ask(line))
        last = asyncio.ensure_future(ask(line))
        with pytest.raises(Unheard):
            await ask(line, timeout_s=0.05)
        first.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        found = await asyncio.gather(first, cancelled, last, return_exceptions=True)
        assert [type(each) for each in found[:2]] == [asyncio.CancelledError] * 2
        assert found[2] == b"ok"
        assert await ask(line) == b"ok"


def test_a_line_goes_on_in_another_loop() -> None:
    lines: list[Line] = []

    async def once(port: int) -> int:
        async with scripted([OK], port=port) as server:
            place = place_of(server.url)
            assert place is not None
            lines.append(lines[0] if lines else Line(place))
            assert await ask(lines[-1]) == b"ok"
            await lines[-1].close()
            return place.port

    asyncio.run(once(asyncio.run(once(0))))


def served_with(authority: Authority, name: str = "server") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.cert(name), authority.key(name))
    return context


def test_over_tls_only_a_certificate_that_is_trusted_is_spoken_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.subject("other", "/CN=127.0.0.1")

    async def speak(name: str, trusted: ssl.SSLContext | None) -> tuple[list[bytes], Scripted]:
        async with (
            scripted([OK, OK], tls=served_with(authority, name)) as server,
            line_to(server.url, tls=trusted) as line,
        ):
            return [await ask(line), await ask(line)], server

    trusting = ssl.create_default_context(cafile=authority.ca)
    answers, server = asyncio.run(speak("server", trusting))
    assert (answers, server.connections) == ([b"ok"] * 2, 1)
    for name, context in (("server", None), ("other", trusting)):
        with pytest.raises(Unheard) as stranger:
            asyncio.run(speak(name, context))
        assert stranger.value.distrust


async def test_over_tls_a_call_that_is_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    trusting = ssl.create_default_context(cafile=authority.ca)
    async with (
        scripted([None], tls=served_with(authority)) as server,
        line_to(server.url, tls=trusting) as line,
    ):
        with pytest.raises(TimeoutError):
            await ask(line, timeout_s=0.3)
