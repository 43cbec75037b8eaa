"""Postman: real requests to real receivers; whatever these do is an answer, and no address is reached unseen."""

import asyncio
import contextlib
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from regista.webhooks.addresses import Allowed
from regista.webhooks.base import Answer
from regista.webhooks.postman import Postman
from tests.certificates import Authority
from tests.webhook_kit import Receiver, receiving

HERE = Allowed(["127.0.0.0/8"])
BODY = b'{"n":1}'


async def post(url: str, allowed: Allowed = HERE, timeout_s: float = 5.0, **options: Any) -> Answer:
    postman = Postman(allowed, timeout_s, **options)
    try:
        return await postman(url, {"webhook-id": "x"}, BODY)
    finally:
        await postman.stop()
        await postman.stop()


def replying(receiver: Receiver, status: int, **headers: str) -> None:
    async def reply(number: int) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    receiver.reply = reply


async def test_what_is_sent_arrives_as_it_was_signed() -> None:
    async with receiving() as receiver:
        assert await post(receiver.url) == Answer(status=204)
        (heard,) = receiver.heard
        assert heard.raw == BODY
        assert heard.headers["webhook-id"] == "x"
        assert heard.headers["Content-Type"] == "application/json"


async def test_a_refusal_says_its_status_and_how_long_to_wait() -> None:
    async with receiving() as receiver:
        replying(receiver, 429, **{"Retry-After": "120"})
        assert await post(receiver.url) == Answer(status=429, error="answered 429", retry_after_s=120.0)
        replying(receiver, 503, **{"Retry-After": "99999999"})
        assert (await post(receiver.url)).retry_after_s == 3600.0
        replying(receiver, 503, **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"})
        assert (await post(receiver.url)).retry_after_s is None


async def test_a_receiver_that_is_gone_for_good_is_believed() -> None:
    async with receiving() as receiver:
        replying(receiver, 410)
        assert await post(receiver.url) == Answer(status=410, error="answered 410", final=True)


async def test_a_redirect_is_not_followed_wherever_it_leads() -> None:
    async with receiving() as inside, receiving() as outside:
        for status in (301, 302, 303, 307, 308):
            replying(outside, status, Location=inside.url)
            answer = await post(outside.url)
            assert (answer.status, answer.final) == (status, False)
            assert "redirects are not followed" in answer.error
        assert inside.heard == []


async def test_a_receiver_that_hangs_or_drips_is_left_after_the_time_out() -> None:
    async with receiving() as receiver:

        async def hang(number: int) -> web.StreamResponse:
            await asyncio.sleep(30)
            return web.Response()

        receiver.reply = hang
        began = time.monotonic()
        answer = await post(receiver.url, timeout_s=0.2)
        assert answer == Answer(error="no answer within 0.2 s")
        assert time.monotonic() - began < 3


async def test_an_endless_answer_is_not_read() -> None:
    """The status is all that counts; of a body that never ends not even the beginning is waited for."""

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await post(f"http://127.0.0.1:{port}/")).status == 200
        await asyncio.sleep(0.05)


async def test_nobody_there_and_nonsense_are_answers_too() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answer = await post(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert answer.status is None
    assert answer.error
    assert not answer.final

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-secret-inside\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        answer = await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert answer.error
        assert "secret-inside" not in answer.error


async def test_what_is_no_url_is_given_up_at_once() -> None:
    for url in ("", "http://", "nonsense", "http://[::1"):
        assert (await post(url)).final


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
async def test_our_own_machine_is_not_reached_however_its_address_is_written(host: str) -> None:
    async with receiving() as receiver:
        answer = await post(f"http://{host}:{receiver.port}/", Allowed())
        assert receiver.heard == []
        assert answer.final or answer.status is None
        assert answer.error


class Rebinding(AbstractResolver):
    """Says a public address at the first question and ours ever after, as an attacker's name server does."""

    def __init__(self) -> None:
        self.asked = 0

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        self.asked += 1
        address = "127.0.0.1" if self.asked > 1 else "192.0.2.1"
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
        ]

    async def close(self) -> None:
        return None


async def test_a_name_that_changes_its_meaning_is_looked_at_every_time_it_is_looked_up() -> None:
    """The first meaning is allowed here and leads nowhere; the second is ours, and is refused before any connection."""
    async with receiving() as receiver:
        resolver = Rebinding()
        postman = Postman(Allowed(["192.0.2.0/24"]), 0.3, lambda: resolver)
        url = f"http://rebind.example.com:{receiver.port}/"
        try:
            first = await postman(url, {}, BODY)
            second = await postman(url, {}, BODY)
        finally:
            await postman.stop()
        assert (first.status, first.final) == (None, False)
        assert second.final
        assert "127.0.0.1 is not a public address" in second.error
        assert (resolver.asked, receiver.heard) == (2, [])


class Both(Rebinding):
    """Names a public address and ours at once."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        good = await super().resolve(host, port, family)
        return [*good, *await super().resolve(host, port, family)]


async def test_one_bad_address_spoils_the_name() -> None:
    async with receiving() as receiver:
        answer = await post(
            f"http://both.example.com:{receiver.port}/", Allowed(["192.0.2.0/24"]), resolver=Both
        )
        assert answer.final
        assert receiver.heard == []


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert (await post(receiver.url)).ok
        assert (len(proxy.heard), len(receiver.heard)) == (0, 1)


async def test_names_are_looked_up_by_the_system() -> None:
    async with receiving() as receiver:
        assert (await post(f"http://localhost:{receiver.port}/", Allowed(["127.0.0.0/8", "::1/128"]))).ok
        nobody = await post("http://no-such-host.invalid/")
        assert (nobody.status, nobody.final) == (None, False)


# -- connections -------------------------------------------------------------------------------------


class Scripted:
    """A receiver that says these very bytes: for each connection a list of answers, after which it hangs up."""

    def __init__(self, *connections: list[bytes | tuple[bytes, ...]]) -> None:
        self.heard: list[bytes] = []
        self.connections = self.open = self.port = 0
        self.url = ""
        self._script = connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            for answer in self._script[self.connections - 1]:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heard.append(head + await reader.readexactly(len(BODY)))
                for piece in answer if isinstance(answer, tuple) else (answer,):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # who sends has hung up
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.open -= 1


@asynccontextmanager
async def scripted(
    *connections: list[bytes | tuple[bytes, ...]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Scripted]:
    receiver = Scripted(*connections)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    async with server, asyncio.timeout(8):
        receiver.port = server.sockets[0].getsockname()[1]
        receiver.url = f"http://127.0.0.1:{receiver.port}/"
        yield receiver
        while receiver.open:  # noqa: ASYNC110  # it hears of the end of a connection when it hears of it
            await asyncio.sleep(0.01)


async def posts(url: str, number: int, pause_s: float = 0.03) -> list[int | None]:
    """The statuses of so many posts, one after the other."""
    postman = Postman(HERE, 5.0)
    try:
        found = []
        for _ in range(number):
            found.append((await postman(url, {"webhook-id": "x"}, BODY)).status)
            await asyncio.sleep(pause_s)
        return found
    finally:
        await postman.stop()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        (b"HTTP/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r", b"\n", b"o", b"k"),
    ],
)
async def test_a_connection_is_used_again_once_a_whole_answer_has_come(answer: Any) -> None:
    async with scripted([answer, answer, answer]) as receiver:
        assert {*await posts(receiver.url, 3, pause_s=0.1)} <= {200, 204}
        assert (receiver.connections, len(receiver.heard)) == (1, 3)
        assert len(set(receiver.heard)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_connection_on_which_something_is_left_to_say_is_not_used_again(answer: bytes) -> None:
    async with scripted([answer], [answer]) as receiver:
        assert await posts(receiver.url, 2) == [200, 200]
        assert receiver.connections == 2


async def test_what_was_hung_up_between_two_deliveries_is_dialled_again_at_once() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with scripted([answer, b""], [answer]) as receiver:
        assert await posts(receiver.url, 2) == [200, 200]
        assert (receiver.connections, len(receiver.heard)) == (2, 3)


async def test_a_new_connection_that_is_hung_up_is_a_failed_try() -> None:
    async with scripted([b""]) as receiver:
        answer = await post(receiver.url)
        assert (answer.status, answer.final) == (None, False)
        assert receiver.connections == 1


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, b"HTTP/1.1 102 Wait\r\n\r\n" * 1000]
)
async def test_a_head_without_end_is_not_read_to_its_end(answer: bytes) -> None:
    async with scripted([(answer, *[b"x"] * 500)]) as receiver:
        began = time.monotonic()
        told = await post(receiver.url)
        assert (told.status, told.final) == (None, False)
        assert "expected" in told.error
        assert time.monotonic() - began < 3


async def test_a_head_that_is_too_long_is_not_read_though_its_end_has_come() -> None:
    """All of it may come at once, and each of its lines costs something."""
    async with scripted([b"HTTP/1.1 200 OK\r\n" + b"a:\n" * 20_000 + b"\r\n\r\n"]) as receiver:
        told = await post(receiver.url)
        assert (told.status, told.error) == (None, "expected the head of an answer in 16 KiB")


async def test_a_connection_on_which_the_last_request_is_not_read_yet_is_not_used_again() -> None:
    """Whoever answers before it has read may never read: the next delivery does not stand behind that."""
    connections = 0
    told = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await told.wait()
        writer.transport.abort()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    async with server:
        postman = Postman(HERE, 2.0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        answers = [await postman(url, {}, b"x" * 20_000_000) for _ in range(2)]
        await postman.stop()
        told.set()
        await asyncio.sleep(0.05)
    assert answers == [Answer(status=200)] * 2
    assert connections == 2


async def test_connections_that_nobody_needs_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regista.webhooks.postman._KEPT_S", 0.05)
    async with receiving() as receiver:
        postman = Postman(HERE)
        assert (await postman(receiver.url, {}, BODY)).ok
        assert len(postman._kept) == 1
        await asyncio.sleep(0.3)
        assert len(postman._kept) == 0
        assert (await postman(receiver.url, {}, BODY)).ok
        await postman.stop()


async def test_no_more_connections_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regista.webhooks.postman._KEPT", 2)
    async with receiving() as receiver:
        postman = Postman(HERE)
        answers = await asyncio.gather(*[postman(receiver.url, {}, BODY) for _ in range(6)])
        assert all(answer.ok for answer in answers)
        assert len(postman._kept) == 2
        await postman.stop()


async def test_a_header_of_two_lines_is_not_sent() -> None:
    async with receiving() as receiver:
        postman = Postman(HERE)
        for value in ("x\r\nEvil: yes", "x\nEvil: yes", "x\r"):
            assert (await postman(receiver.url, {"webhook-id": value}, BODY)).final
        await postman.stop()
        assert receiver.heard == []


async def test_a_name_and_a_password_in_the_url_are_shown_and_strange_paths_are_quoted() -> None:
    async with receiving() as receiver:
        assert (await post(f"http://ann:p%40ss@127.0.0.1:{receiver.port}/a%20b/ü?x=1 2#end")).ok
        (heard,) = receiver.heard
        assert heard.headers["Authorization"] == "Basic " + b64encode(b"ann:p@ss").decode()
        assert heard.headers["Host"] == f"127.0.0.1:{receiver.port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def test_over_tls_only_a_certificate_that_is_trusted_is_told(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async def tell() -> list[Answer]:
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(authority.cert(), authority.key())
        async with scripted([answer, answer], tls=served) as receiver:
            url = f"https://localhost:{receiver.port}/"
            postman = Postman(Allowed(["127.0.0.0/8", "::1/128"]), 5.0)
            answers = [await postman(url, {}, BODY), await postman(url, {}, BODY)]
            await postman.stop()
            await asyncio.sleep(0.05)
        return answers

    async def tell_another_name() -> Answer:
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(authority.cert("other"), authority.key("other"))
        async with scripted([answer], tls=served) as receiver:
            told = await post(f"https://127.0.0.1:{receiver.port}/")
            await asyncio.sleep(0.05)
        assert receiver.heard == []
        return told

    stranger, _ = asyncio.run(tell())
    assert (stranger.status, stranger.final) == (None, False)
    assert "certificate verify failed" in stranger.error
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    assert asyncio.run(tell()) == [Answer(status=200)] * 2
    authority.subject("other", "/CN=127.0.0.1")
    impostor = asyncio.run(tell_another_name())
    assert (impostor.status, impostor.final) == (None, False)
    assert "certificate verify failed" in impostor.error
