"""WebhookClient: real requests to real receivers. Whatever these do is a result, and no address is called unchecked."""

import asyncio
import contextlib
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import ResolveResult

from regista.webhooks.addresses import AddressPolicy
from regista.webhooks.base import DeliveryResult
from regista.webhooks.client import WebhookClient
from regista.webhooks.resolver import CheckedResolver
from tests.certificates import Authority
from tests.webhook_kit import Receiver, receiving

HERE = AddressPolicy(["127.0.0.0/8", "::1/128"])
NOWHERE = AddressPolicy()
BODY = b'{"n":1}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def client_with(
    policy: AddressPolicy = HERE, timeout_s: float = 5.0, **options: Any
) -> AsyncIterator[WebhookClient]:
    client = WebhookClient(policy, timeout_s, **options)
    try:
        yield client
    finally:
        await client.stop()
        await client.stop()


async def post(
    url: str, policy: AddressPolicy = HERE, timeout_s: float = 5.0, **options: Any
) -> DeliveryResult:
    async with client_with(policy, timeout_s, **options) as client:
        return await client(url, {"webhook-id": "x"}, BODY)


def replying(receiver: Receiver, status: int, **headers: str) -> None:
    async def reply(number: int) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    receiver.reply = reply


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
            pass  # the sender has hung up
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
        receiver.url = f"http{'s' if tls else ''}://localhost:{receiver.port}/"
        yield receiver
        while receiver.open:  # noqa: ASYNC110  # it learns of the end of a connection when it learns of it
            await asyncio.sleep(0.01)


class Names(CheckedResolver):
    """A name server of the test: the addresses of the first look-up, of the second, …; then the last again."""

    def __init__(self, policy: AddressPolicy, *meanings: tuple[str, ...]) -> None:
        super().__init__(policy)
        self.asked = 0
        self._meanings = meanings

    async def look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        found = self._meanings[min(self.asked, len(self._meanings) - 1)]
        self.asked += 1
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in found
        ]


# -- results -----------------------------------------------------------------------------------------


async def test_what_is_sent_arrives_as_it_was_signed() -> None:
    async with receiving() as receiver:
        assert await post(receiver.url) == DeliveryResult(status=204)
        (heard,) = receiver.heard
        assert heard.raw == BODY
        assert heard.headers["webhook-id"] == "x"
        assert heard.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "retry_after", "expected"),
    [
        (429, "120", DeliveryResult(status=429, error="answered 429", retry_after_s=120.0)),
        (503, "99999999", DeliveryResult(status=503, error="answered 503", retry_after_s=3600.0)),
        (503, "Fri, 31 Dec 1999 23:59:59 GMT", DeliveryResult(status=503, error="answered 503")),
        (410, "", DeliveryResult(status=410, error="answered 410", final=True)),
    ],
)
async def test_a_refusal_has_its_status_and_its_pause(
    status: int, retry_after: str, expected: DeliveryResult
) -> None:
    async with receiving() as receiver:
        replying(receiver, status, **({"Retry-After": retry_after} if retry_after else {}))
        assert await post(receiver.url) == expected


async def test_a_receiver_that_hangs_is_left_after_the_time_out() -> None:
    async with receiving() as receiver:

        async def hang(number: int) -> web.StreamResponse:
            await asyncio.sleep(30)
            return web.Response()

        receiver.reply = hang
        began = time.monotonic()
        result = await post(receiver.url, timeout_s=0.2)
        assert (result.status, result.final, bool(result.error)) == (None, False, True)
        assert time.monotonic() - began < 3


async def test_an_endless_answer_is_not_read() -> None:
    """The status is all that counts; the end of the body is not waited for."""

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


async def test_a_body_that_drips_does_not_make_a_failure_of_a_success() -> None:
    answer = (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"x"] * 50)
    async with scripted([answer]) as receiver:
        began = time.monotonic()
        assert await post(receiver.url, timeout_s=2.0) == DeliveryResult(status=200)
        assert time.monotonic() - began < 1.5


async def test_a_closed_port_is_a_result_and_may_open_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = await post(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert (result.status, result.final, bool(result.error)) == (None, False, True)


@pytest.mark.parametrize(
    "answer",
    [
        (b"SSH-2.0-secret-inside\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: " + b"secret-inside" * 2_000, *[b"x"] * 50),
        (b"HTTP/1.1 200 OK\r\n" + b"secret-inside:\n" * 20_000 + b"\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nsecret-inside",),
        (b"HTTP/1.1 secret-inside\r\n\r\n",),
        (b"HTTP/1.1 102 Wait\r\n\r\n" * 1000,),
    ],
    ids=["ssh", "long header", "many headers", "two lengths", "no status", "only interim"],
)
async def test_an_answer_that_is_no_http_is_a_failure_that_repeats_nothing_of_it(
    answer: tuple[bytes, ...],
) -> None:
    async with scripted([answer], [answer]) as receiver:
        result = await post(receiver.url, timeout_s=2.0)
        assert (result.status, result.final, bool(result.error)) == (None, False, True)
        assert "secret-inside" not in result.error


@pytest.mark.parametrize("url", ["", "http://", "nonsense", "http://[::1", "ftp://127.0.0.1/", "http://a:b/"])
async def test_what_is_no_url_is_given_up_at_once(url: str) -> None:
    assert (await post(url)).final


@pytest.mark.parametrize("value", ["x\r\nEvil: yes", "x\nEvil: yes", "x\r"])
async def test_a_header_of_two_lines_is_not_sent(value: str) -> None:
    async with receiving() as receiver, client_with() as client:
        assert (await client(receiver.url, {"webhook-id": value}, BODY)).final
        assert receiver.heard == []


async def test_credentials_of_the_url_are_sent_and_strange_paths_are_quoted() -> None:
    async with receiving() as receiver:
        assert (await post(f"http://ann:p%40ss@127.0.0.1:{receiver.port}/a%20b/ü?x=1 2#end")).ok
        (heard,) = receiver.heard
        assert heard.headers["Authorization"] == "Basic " + b64encode(b"ann:p@ss").decode()
        assert heard.headers["Host"] == f"127.0.0.1:{receiver.port}"


# -- what must never be called -----------------------------------------------------------------------

Url = Callable[[int], str]


def at(host: str) -> Url:
    return lambda port: f"http://{host}:{port}/"


@pytest.mark.parametrize(
    ("url", "meanings"),
    [
        *[
            pytest.param(at(host), (), id=host)
            for host in (
                "127.0.0.1",
                "127.0.0.1.",
                "localhost",
                "LOCALHOST.",
                "127.1",
                "0x7f.0.0.1",
                "2130706433",
                "017700000001",
                "①27.0.0.1",
                "0.0.0.0",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "user:password@127.0.0.1",
            )
        ],
        pytest.param(at("hooks.example.com"), (("127.0.0.1",),), id="a name of this machine"),
        pytest.param(
            at("hooks.example.com"), (("1.1.1.1", "127.0.0.1"),), id="one bad address among good ones"
        ),
        pytest.param(at("hooks.example.com"), (("127.0.0.1",), ("1.1.1.1",)), id="a name that changes"),
    ],
)
async def test_a_private_address_is_never_called(url: Url, meanings: tuple[tuple[str, ...], ...]) -> None:
    names = Names(NOWHERE, *meanings) if meanings else None
    async with receiving() as receiver:
        result = await post(url(receiver.port), NOWHERE, resolver=names)
        assert receiver.heard == []
        assert result.final
        assert result.status is None


async def test_a_name_is_checked_every_time_it_is_looked_up() -> None:
    """The first address is allowed here and leads nowhere; the second is ours, and is refused before any connection."""
    policy = AddressPolicy(["192.0.2.0/24"])
    names = Names(policy, ("192.0.2.1",), ("127.0.0.1",))
    async with receiving() as receiver, client_with(policy, 0.3, resolver=names) as client:
        url = f"http://rebind.example.com:{receiver.port}/"
        first, second = await client(url, {}, BODY), await client(url, {}, BODY)
        assert (first.status, first.final) == (None, False)
        assert second.final
        assert "127.0.0.1 is not a public address" in second.error
        assert (names.asked, receiver.heard) == (2, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiving() as inside, receiving() as outside:
        replying(outside, status, Location=inside.url)
        result = await post(outside.url)
        assert (result.status, result.final, result.ok) == (status, False, False)
        assert inside.heard == []


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert (await post(receiver.url)).ok
        assert (len(proxy.heard), len(receiver.heard)) == (0, 1)


async def test_cookies_are_not_kept() -> None:
    async with receiving() as receiver, client_with() as client:
        replying(receiver, 200, **{"Set-Cookie": "a=b; Path=/"})
        url = receiver.url.replace("127.0.0.1", "localhost")
        for _ in range(2):
            assert (await client(url, {}, BODY)).ok
        assert not any("Cookie" in heard.headers for heard in receiver.heard)


async def test_names_are_looked_up_by_the_system() -> None:
    async with receiving() as receiver:
        assert (await post(f"http://localhost:{receiver.port}/")).ok
        missing = await post("http://no-such-host.invalid/")
        assert (missing.status, missing.final) == (None, False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.subject("other", "/CN=other.example.com")
    return made


@pytest.mark.parametrize(
    ("trusted", "name", "host", "ok"),
    [
        (False, "server", "localhost", False),
        (True, "server", "localhost", True),
        (True, "server", "127.0.0.1", True),
        (True, "other", "localhost", False),
    ],
)
async def test_over_tls_only_a_certificate_that_is_trusted_is_accepted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, trusted: bool, name: str, host: str, ok: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.cert(name), authority.key(name))
    async with scripted([OK, OK], tls=context) as receiver:
        url = receiver.url.replace("localhost", host)
        async with client_with() as client:
            results = [await client(url, {}, BODY) for _ in range(2)]
        await asyncio.sleep(0.05)
    if ok:
        assert results == [DeliveryResult(status=200)] * 2
    else:
        assert receiver.heard == []
        for result in results:
            assert (result.status, result.final) == (None, False)
            assert "certificate verify failed" in result.error


# -- connections -------------------------------------------------------------------------------------


async def statuses(url: str, number: int) -> list[int | None]:
    """The statuses of so many posts, one after the other."""
    async with client_with() as client:
        found = []
        for _ in range(number):
            found.append((await client(url, {"webhook-id": "x"}, BODY)).status)
            await asyncio.sleep(0.1)
        return found


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        (b"HTTP/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r", b"\n", b"o", b"k"),
    ],
)
async def test_a_connection_is_used_again_once_a_whole_answer_has_come(answer: Any) -> None:
    async with scripted([answer, answer, answer]) as receiver:
        assert {*await statuses(receiver.url, 3)} <= {200, 204}
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
async def test_a_connection_on_which_more_may_come_is_not_used_again(answer: bytes) -> None:
    async with scripted([answer], [answer], [answer]) as receiver:
        assert await statuses(receiver.url, 2) == [200, 200]
        assert receiver.connections == 2


async def test_what_was_hung_up_between_two_deliveries_is_sent_again_at_once() -> None:
    async with scripted([OK, b""], [OK]) as receiver:
        assert await statuses(receiver.url, 2) == [200, 200]
        assert (receiver.connections, len(receiver.heard)) == (2, 3)
        assert len(set(receiver.heard)) == 1  # the same id, so that the receiver can drop it


async def test_a_receiver_that_always_hangs_up_is_a_failed_attempt() -> None:
    async with scripted([b""], [b""]) as receiver:
        result = await post(receiver.url)
        assert (result.status, result.final) == (None, False)
        assert receiver.connections == 2
