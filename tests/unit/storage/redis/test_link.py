import asyncio
import logging
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from regista.errors import StorageError, StorageUnavailable
from regista.storage.redis.line import ServerRefusal, connection_of
from regista.storage.redis.link import Link
from tests.conftest import Require
from tests.ports import free_port
from tests.proxy import Proxy
from tests.redis_server import RedisServer


@asynccontextmanager
async def linked(url: str, patience_s: float = 2.0) -> AsyncIterator[Link]:
    link = Link(url, "test", patience_s)
    await link.open()
    try:
        yield link
    finally:
        await link.close()


async def test_many_callers_share_one_connection_and_get_their_own_answers(server: RedisServer) -> None:
    async with linked(server.url) as link:
        answers = await asyncio.gather(*(link.ask(("ECHO", f"n{n}"), ("ECHO", n)) for n in range(500)))
        assert answers == [[b"n%d" % n, b"%d" % n] for n in range(500)]
        (clients,) = await link.ask(("CLIENT", "LIST"))
        assert clients.count(b"name=test ") == 1


async def test_one_refused_command_spoils_no_other_answer(server: RedisServer) -> None:
    async with linked(server.url) as link:
        good, bad, last = await asyncio.gather(
            link.ask(("ECHO", "a")),
            link.ask(("NONSENSE",)),
            link.ask(("ECHO", "b")),
            return_exceptions=True,
        )
        assert (good, last) == ([b"a"], [b"b"])
        assert isinstance(bad, ServerRefusal)


async def test_who_gave_up_waiting_costs_nobody_an_answer(server: RedisServer) -> None:
    async with linked(server.url) as link:
        first = asyncio.ensure_future(link.ask(("ECHO", "first")))
        second = asyncio.ensure_future(link.ask(("ECHO", "second")))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [b"second"]
        assert await link.ask(("ECHO", "third")) == [b"third"]


async def test_a_cut_connection_is_made_anew_within_the_same_call(server: RedisServer) -> None:
    async with Proxy(server.port) as network, linked(f"redis://127.0.0.1:{network.port}") as link:
        for n in range(5):
            network.cut()
            assert await link.ask(("ECHO", n)) == [b"%d" % n]


async def test_a_server_that_is_silent_is_unavailable_and_later_it_is_back(mortal: RedisServer) -> None:
    async with linked(mortal.url, patience_s=0.3) as link:
        mortal.kill(signal.SIGSTOP)
        answers = await asyncio.gather(*(link.ask(("ECHO", n)) for n in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StorageUnavailable] * 3
        mortal.kill(signal.SIGCONT)
        assert await link.ask(("ECHO", "back")) == [b"back"]


async def test_what_takes_long_to_carry_is_no_outage(server: RedisServer) -> None:
    """Three megabytes up and down, each way three times as long as silence is borne."""

    async with (
        Proxy(server.port) as network,
        linked(f"redis://127.0.0.1:{network.port}", patience_s=0.3) as link,
    ):
        network.slowness_s = 0.02
        large = b"x" * 3_000_000
        assert await link.ask(("SET", "large", large)) == [b"OK"]
        asked = [link.ask(("GET", "large")), link.ask(("ECHO", "small"))]
        assert await asyncio.gather(*asked) == [[large], [b"small"]]
        network.stall()
        with pytest.raises(StorageUnavailable, match=r"did not answer within 0\.3 s"):
            await link.ask(("GET", "large"))


async def test_what_is_asked_while_the_network_is_full_waits_its_turn(server: RedisServer) -> None:
    async with Proxy(server.port) as network, linked(f"redis://127.0.0.1:{network.port}") as link:
        network.slowness_s = 0.005
        words = [b"%d" % n * 100_000 for n in range(10, 20)]
        asked = []
        for word in words:
            asked.append(asyncio.ensure_future(link.ask(("ECHO", word))))
            await asyncio.sleep(0.001)
        assert await asyncio.gather(*asked) == [[word] for word in words]


async def test_what_cannot_be_sent_is_an_error_of_its_own_and_spoils_no_other_answer(
    server: RedisServer,
) -> None:
    async with linked(server.url) as link:
        with pytest.raises(TypeError):
            await link.ask(("ECHO", "a"), ("ECHO", object()))  # type: ignore[arg-type]
        assert await link.ask(("ECHO", "b")) == [b"b"]


async def test_a_server_that_is_gone_is_unavailable_and_later_it_is_back(mortal: RedisServer) -> None:
    async with linked(mortal.url, patience_s=0.3) as link:
        mortal.kill()
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                await link.ask(("PING",))
        mortal.start()
        assert await link.ask(("PING",)) == [b"PONG"]


def test_an_outage_and_its_end_are_told_once_each(
    mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with linked(mortal.url, 0.2) as link:
            mortal.stop()
            for _ in range(3):
                with pytest.raises(StorageUnavailable):
                    await link.ask(("PING",))
            mortal.start()
            for _ in range(3):
                assert await link.ask(("PING",)) == [b"PONG"]

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "requests get 503 until it is back" in told[0]
    assert told[1] == "the store answers again"


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("/abc", "the number of a database at the end; got 'abc'"),
        ("/0?foo=1", "an option of its query is unknown"),
    ],
)
def test_a_url_that_means_nothing_is_refused(tail: str, said: str) -> None:
    with pytest.raises(StorageError, match="expected a URL like redis://") as caught:
        connection_of(f"redis://localhost:6379{tail}", "test", 1.0)
    assert said in str(caught.value)


async def test_a_short_outage_is_waited_for(mortal: RedisServer) -> None:
    async with linked(mortal.url, patience_s=5) as link:
        mortal.kill()
        asking = asyncio.ensure_future(link.ask(("PING",)))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(mortal.start)
        assert await asking == [b"PONG"]


async def test_a_command_is_told_which_process_of_the_server_it_goes_to(mortal: RedisServer) -> None:
    async with linked(mortal.url, patience_s=5) as link:
        ((first,), (again,)) = [await link.ask(lambda run: ("ECHO", run)) for _ in range(2)]
        mortal.kill()
        await asyncio.to_thread(mortal.start)
        (second,) = await link.ask(lambda run: ("ECHO", run))
        assert len(first) == 40
        assert first == again != second


async def test_closing_twice_is_fine_and_a_closed_link_says_so(server: RedisServer) -> None:
    async with linked(server.url) as link:
        await link.close()
        await link.close()
        with pytest.raises(StorageUnavailable, match="closed"):
            await link.ask(("PING",))
        await link.open()
        assert await link.ask(("PING",)) == [b"PONG"]


async def test_a_link_that_is_closed_while_it_connects_stays_closed(server: RedisServer) -> None:
    async with Proxy(server.port) as network:
        link = Link(f"redis://127.0.0.1:{network.port}", "leaver", 2.0)
        await link.open()
        network.stall()
        network.cut()
        asking = asyncio.ensure_future(link.ask(("PING",)))
        await asyncio.sleep(0.1)
        await link.close()
        network.go_on()
        with pytest.raises(StorageUnavailable, match="closed"):
            await asking
        for _ in range(200):
            if "name=leaver " not in server.ask("CLIENT", "LIST"):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("a connection was left open")


async def test_many_callers_who_find_the_server_gone_knock_a_few_times_only(server: RedisServer) -> None:
    async with Knocked(server.port) as network, linked(f"redis://127.0.0.1:{network.port}", 1.0) as link:
        network.close_the_line()
        network.knocks = 0
        callers = [asyncio.ensure_future(link.ask(("ECHO", n))) for n in range(200)]
        for n in range(200):
            callers.append(asyncio.ensure_future(link.ask(("ECHO", n))))
            await asyncio.sleep(0.002)
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StorageUnavailable}
        assert 3 < network.knocks < 40  # twenty a second, and no more
        network.open_the_line()
        assert await link.ask(("ECHO", "back")) == [b"back"]


class Knocked(Proxy):
    """Counts who comes."""

    knocks = 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocks += 1
        await super()._accept(reader, writer)


async def test_a_password_that_was_changed_is_an_outage_for_who_is_running(mortal: RedisServer) -> None:
    async with linked(mortal.url, patience_s=0.3) as link:
        mortal.ask("CONFIG", "SET", "requirepass", "changed")
        await link.ask(("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"))
        with pytest.raises(StorageUnavailable, match="refused our credentials"):
            await link.ask(("PING",))
        with pytest.raises(StorageError, match="refused our credentials") as caught:
            await _open(mortal.url)
        assert not isinstance(caught.value, StorageUnavailable)


def test_tls_is_asked_for_by_the_url(require: Require, tmp_path: Path) -> None:
    key, cert, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([require("openssl"), *request, *names], check=True, capture_output=True)
    files = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert)]
    options = ["--tls-port", str(port), *files, "--tls-auth-clients", "no"]
    with RedisServer(require("redis-server"), *options) as server:
        asyncio.run(_open(f"rediss://127.0.0.1:{port}?ssl_ca_certs={cert}"))
        # A certificate that nobody vouches for, and a port that speaks no TLS.
        for url in (f"rediss://127.0.0.1:{port}", f"rediss://127.0.0.1:{server.port}"):
            with pytest.raises(StorageError, match="cannot be reached"):
                asyncio.run(_open(url))


async def _open(url: str) -> None:
    async with linked(url, patience_s=1.0):
        pass
