"""Who is at the other end, when a proxy may stand in between."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from regista import OrchestratorEngine
from regista.api.network import UNKNOWN, address_behind, client_address, is_from_proxy, is_secure
from regista.config import Config
from regista.errors import ConfigError
from tests.acceptance.house import house, raw

NEAR = ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("peer", "chain", "found"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # no proxy of ours: its words are nothing
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.5", "1.1.1.1, 198.51.100.7, 10.0.0.9", "198.51.100.7"),  # whoever wrote 1.1.1.1 is no proxy
        ("10.0.0.5", "10.0.0.7, 10.0.0.9", "10.0.0.7"),
        ("10.0.0.5", "nonsense", "10.0.0.5"),
        ("10.0.0.5", "1.1.1.1, nonsense, 10.0.0.9", "10.0.0.9"),
        ("10.0.0.5", "198.51.100.7:4711", "198.51.100.7"),
        ("10.0.0.5", "[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.5", "2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.5", "::ffff:198.51.100.7", "198.51.100.7"),
        ("fd00::1", "2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("fe80::1%eth0", "", "fe80::1"),
        (None, "198.51.100.7", UNKNOWN),
        ("", "198.51.100.7", UNKNOWN),
    ],
)
def test_the_address_is_the_nearest_that_no_proxy_of_ours_has(
    peer: str | None, chain: str, found: str
) -> None:
    assert address_behind(peer, chain, NEAR) == found


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert address_behind("127.0.0.1", "198.51.100.7", ()) == "127.0.0.1"


@given(st.text(), st.text())
def test_whatever_is_said_is_survived(peer: str, chain: str) -> None:
    assert address_behind(peer, chain, NEAR)
    assert address_behind("10.0.0.5", chain, NEAR)


@pytest.mark.parametrize("text", ["nonsense", "10.0.0.0/33", "10.0.0.1;10.0.0.2", "localhost"])
def test_what_is_no_network_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match="REGISTA_TRUSTED_PROXIES: expected addresses or networks"):
        Config.from_env({"REGISTA_TRUSTED_PROXIES": text})


@pytest.mark.parametrize(
    ("trusted", "found"),
    [
        (("127.0.0.0/8",), ("198.51.100.7", True, True)),
        (("10.0.0.0/8",), ("127.0.0.1", False, False)),
        ((), ("127.0.0.1", False, False)),
    ],
)
def test_a_request_is_believed_when_a_proxy_hands_it_over(
    trusted: tuple[str, ...], found: tuple[str, bool, bool]
) -> None:
    seen: list[tuple[str, bool, bool]] = []

    async def note(request: web.Request, _: web.StreamResponse) -> None:
        seen.append((client_address(request), is_from_proxy(request), is_secure(request)))

    async def main() -> None:
        config = Config(trusted_proxies=trusted, client_token="c", worker_token="w")
        app = OrchestratorEngine("memory", config).app
        app.on_response_prepare.append(note)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        headers = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/docs"
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers):
            pass
        await runner.cleanup()

    asyncio.run(main())
    assert seen == [found]


def test_a_token_that_crosses_the_open_network_as_it_is_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with house(trusted_proxies=("127.0.0.1",)) as here:
            for address, proto in (("8.8.4.4", "http"), ("8.8.4.4", "http"), ("8.8.4.5", "https")):
                headers = {"X-Forwarded-For": address, "X-Forwarded-Proto": proto}
                async with raw(here, **headers) as worker:
                    await worker.register()

    asyncio.run(scenario())
    said = [record.getMessage() for record in caplog.records if "plain HTTP" in record.getMessage()]
    assert len(said) == 1
    assert "8.8.4.4" in said[0]
