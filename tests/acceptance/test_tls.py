"""TLS and client certificates, served directly, with real certificates."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista import Client, OrchestratorEngine, Worker
from regista.config import Config, Connection, WorkerConfig
from regista.errors import ConfigError, Unreachable
from regista.sdk.remote import RemoteWorker
from regista.tls import TlsFiles, client_context
from tests.acceptance.house import OLD, TOKEN, House, Raw, house, until
from tests.certificates import Authority

#: How long the last words of TLS may take; the library does not wait for them.
GOODBYE_S = 0.1


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "w", "v")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"), "w")


def mutual(authority: Authority, **more: Any) -> dict[str, Any]:
    """The settings of an orchestrator that knows client certificates."""
    return {**authority.served, "tls_ca_path": authority.ca, **more}


@asynccontextmanager
async def caller(
    here: House, ca: str, own: Authority | None = None, name: str = "", **headers: str
) -> AsyncIterator[Raw]:
    """A worker before a TLS door, with a certificate or without."""
    files = TlsFiles(own.cert(name), own.key(name), ca) if own else TlsFiles(ca=ca)
    tls = client_context(files)
    assert tls is not None
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(here.site.url, connector=connector, headers=headers) as http:
        yield Raw(http, name or "w")
    await asyncio.sleep(GOODBYE_S)


async def register(worker: Raw, worker_id: str, **headers: str) -> tuple[int, str]:
    body = {"worker_id": worker_id, **OLD}
    async with worker.http.post("/_worker/workers/register", json=body, headers=headers) as answer:
        told = await answer.json()
        return answer.status, told.get("code", "")


def play(scenario: Callable[[House], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with house(**settings) as here:
            await scenario(here)

    asyncio.run(main())


def hello(name: str) -> Worker:
    worker = Worker(name)

    @worker.task("echo")
    def echo(params: dict[str, Any]) -> dict[str, Any]:
        return {"echo": params}

    return worker


@asynccontextmanager
async def performing(here: House, **settings: Any) -> AsyncIterator[RemoteWorker]:
    """Our own worker, in this process, over TLS."""
    config = WorkerConfig(orchestrator_url=here.site.url, state_dir="nowhere", **settings)
    remote = RemoteWorker(hello("crew"), config)
    await remote.start()
    try:
        yield remote
    finally:
        await remote.stop(1.0)


# -- TLS ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("websockets", [None, False])
def test_a_worker_and_a_client_speak_with_it_by_their_own_authority(
    authority: Authority, websockets: bool | None
) -> None:
    async def scenario(here: House) -> None:
        assert here.site.url.startswith("https://127.0.0.1:")
        settings = {"token": TOKEN, "tls_ca_path": authority.ca, "enable_websockets": websockets}
        async with performing(here, worker_id="w", **settings) as remote:
            assert await remote.wait_connected(5)
            connection = Connection(url=here.site.url, token="a-client-token", tls_ca_path=authority.ca)
            async with Client(connection=connection) as client:
                job = await client.submit("play", {"skill": "echo", "params": {"n": 1}})
                assert (await client.wait(job.id, 5)).data == {"echo": {"n": 1}}
        await asyncio.sleep(GOODBYE_S)

    play(scenario, **authority.served)


def test_whoever_does_not_know_the_authority_is_told_what_to_do(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(here: House) -> None:
        connection = Connection(url=here.site.url, token="a-client-token")
        async with Client(connection=connection, first_contact_s=0.0) as client:
            with pytest.raises(Unreachable, match=r"certificate is not trusted.*TLS_CA_PATH"):
                await client.status()
        async with performing(here, worker_id="w", token=TOKEN):
            await until(lambda: "TLS_CA_PATH" in caplog.text)

    play(scenario, **authority.served)


def test_plain_http_gets_nothing_out_of_it(authority: Authority) -> None:
    async def scenario(here: House) -> None:
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientError):
                await http.get(here.site.url.replace("https:", "http:") + "/_public/status")

    play(scenario, **authority.served)


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    async def scenario(here: House) -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(authority.ca)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", here.site.port, ssl=old)

    play(scenario, **authority.served)


def test_half_a_handshake_is_not_waited_for(authority: Authority) -> None:
    async def scenario(here: House) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.site.port)
        writer.write(b"\x16\x03\x01")
        async with asyncio.timeout(3):
            assert await reader.read() == b""
        writer.close()

    play(scenario, **authority.served, body_timeout_s=0.3)


def test_a_reload_shows_the_new_certificate_to_the_next_connection(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    cert, key, ca = (tmp_path / name for name in ("server.pem", "server.key", "ca.pem"))

    def put(source: Authority) -> None:
        for path, found in ((cert, source.cert()), (key, source.key()), (ca, source.ca)):
            shutil.copy(found, path)

    put(authority)
    paths = {"tls_cert_path": str(cert), "tls_key_path": str(key), "tls_ca_path": str(ca)}

    async def scenario(here: House) -> None:
        async with caller(here, authority.ca, authority, "w") as early:
            assert await register(early, "w") == (200, "")
            put(stranger)
            assert here.director.reload() is True
            # Open connections go on as they were.
            assert await register(early, "w") == (200, "")
        async with caller(here, stranger.ca, stranger, "w") as late:
            assert await register(late, "w") == (200, "")
        async with caller(here, stranger.ca, authority, "w") as gone:
            with pytest.raises(aiohttp.ClientError):
                await register(gone, "w")
        async with caller(here, authority.ca) as outdated:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await register(outdated, "w")
        key.write_text("not a key")
        assert here.director.reload() is False
        async with caller(here, stranger.ca, stranger, "w") as late:
            assert await register(late, "w") == (200, "")

    play(scenario, **paths)


async def test_a_mistake_stops_the_start_before_anything_is_opened(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    store = tmp_path / "jobs.db"
    wrong: dict[str, Any] = {"tls_cert_path": authority.cert(), "tls_key_path": stranger.key()}
    director = OrchestratorEngine(f"sqlite:{store}", Config(worker_token="t", client_token="t", **wrong))
    with pytest.raises(ConfigError, match="TLS_KEY_PATH: expected the key of"):
        await director.serve(port=0)
    assert not store.exists()
    for settings, name in (
        ({"tls_enabled": True}, "TLS_CERT_PATH"),
        ({**authority.served, "tls_require_client_cert": True}, "TLS_CA_PATH"),
    ):
        director = OrchestratorEngine("memory", Config(worker_token="t", client_token="t", **settings))
        with pytest.raises(ConfigError, match=name):
            await director.serve(port=0)


def test_tls_can_be_left_off_where_a_certificate_is_named_for_somebody_else(authority: Authority) -> None:
    async def scenario(here: House) -> None:
        assert here.site.url.startswith("http://")

    play(scenario, **authority.served, tls_enabled=False)


# -- client certificates ------------------------------------------------------------------------------


def test_a_certificate_alone_lets_its_worker_in_and_nobody_else(authority: Authority) -> None:
    async def scenario(here: House) -> None:
        async with caller(here, authority.ca, authority, "w") as worker:
            assert await register(worker, "w") == (200, "")
            assert await register(worker, "v") == (403, "worker_mismatch")
            assert await register(worker, "v", **{"X-Worker-Token": TOKEN}) == (403, "worker_mismatch")
            assert await register(worker, "w", **{"X-Worker-ID": "v"}) == (403, "worker_mismatch")
            assert await register(worker, "w", **{"X-Worker-Token": "nonsense"}) == (200, "")
            async with worker.http.get("/_worker/workers/v/tasks/next") as answer:
                assert answer.status == 403
            async with worker.http.post("/_worker/auth/token") as answer:
                told = await answer.json()
                assert (answer.status, told["worker_id"]) == (200, "w")
            # What the certificate was traded for lets the same worker in without it.
            token = {"X-Worker-Token": told["access_token"]}
        async with caller(here, authority.ca) as worker:
            assert await register(worker, "w", **token) == (200, "")
            assert await register(worker, "v", **token) == (403, "worker_mismatch")
            assert await register(worker, "w") == (401, "token_missing")
            assert await register(worker, "w", **{"X-Worker-Token": TOKEN}) == (200, "")
        async with caller(here, authority.ca, authority, "v") as worker:
            assert await register(worker, "v", **token) == (403, "worker_mismatch")

    play(scenario, **mutual(authority))


def test_a_certificate_of_another_authority_gets_nowhere(authority: Authority, stranger: Authority) -> None:
    async def scenario(here: House) -> None:
        async with caller(here, authority.ca, stranger, "w") as worker:
            with pytest.raises(aiohttp.ClientError):
                await register(worker, "w", **{"X-Worker-Token": TOKEN})
        assert here.director.dispatcher.find("w") is None

    play(scenario, **mutual(authority))


@pytest.mark.parametrize("subject", ["/O=nobody", "/CN=w/CN=v", "/CN=w/O=x/CN=w"])
def test_a_certificate_that_names_nobody_or_several_is_nobodys(authority: Authority, subject: str) -> None:
    authority.subject("odd", subject)

    async def scenario(here: House) -> None:
        async with caller(here, authority.ca, authority, "odd") as worker:
            for name in ("w", "v"):
                told = await register(worker, name, **{"X-Worker-Token": TOKEN})
                assert told == (403, "certificate_without_name")

    play(scenario, **mutual(authority))


def test_where_certificates_are_required_nothing_is_had_without_one(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(here: House) -> None:
        async with caller(here, authority.ca) as worker:
            with pytest.raises(aiohttp.ClientError):
                await register(worker, "w", **{"X-Worker-Token": TOKEN})
        async with caller(here, authority.ca, authority, "w") as worker:
            assert await register(worker, "w") == (200, "")
        async with performing(here, worker_id="v", token=TOKEN, tls_ca_path=authority.ca):
            # Mostly the connection is cut before the reason can be read.
            await until(lambda: "cannot be reached" in caplog.text)
        assert here.director.dispatcher.find("v") is None

    play(scenario, **mutual(authority, tls_require_client_cert=True))


def test_the_mode_says_what_counts(authority: Authority) -> None:
    async def only_certificates(here: House) -> None:
        async with caller(here, authority.ca) as worker:
            assert await register(worker, "w", **{"X-Worker-Token": TOKEN}) == (401, "certificate_missing")
        async with caller(here, authority.ca, authority, "w") as worker:
            assert await register(worker, "w") == (200, "")

    async def only_tokens(here: House) -> None:
        async with caller(here, authority.ca, authority, "w") as worker:
            assert await register(worker, "w") == (401, "token_missing")
            assert await register(worker, "v", **{"X-Worker-Token": TOKEN}) == (200, "")

    play(only_certificates, **mutual(authority, worker_auth_mode="mtls-only"))
    play(only_tokens, **mutual(authority, worker_auth_mode="token-only"))


@pytest.mark.parametrize("websockets", [None, False])
@pytest.mark.parametrize("signed", [False, True])
def test_our_worker_needs_nothing_but_its_certificate(
    authority: Authority, websockets: bool | None, signed: bool
) -> None:
    async def scenario(here: House) -> None:
        own = {"tls_cert_path": authority.cert("w"), "tls_key_path": authority.key("w")}
        settings = {**own, "tls_ca_path": authority.ca, "enable_websockets": websockets}
        async with performing(here, worker_id="w", **settings) as remote:
            assert await remote.wait_connected(5)
            assert (await here.run("echo", n=2)).data == {"echo": {"n": 2}}

    play(scenario, **mutual(authority, worker_require_signatures=signed))


def test_headers_about_a_certificate_are_nothing_but_words_of_a_stranger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forged = {"X-Client-Cert-CN": "w", "X-Client-Cert-Verify": "SUCCESS", "X-Forwarded-For": "10.0.0.1"}

    async def scenario(here: House) -> None:
        async with aiohttp.ClientSession(here.site.url, headers=forged) as http:
            worker = Raw(http, "w")
            assert await register(worker, "w") == (401, "token_missing")
            assert await register(worker, "w", **{"X-Worker-Token": TOKEN}) == (200, "")
            assert await register(worker, "v", **{"X-Worker-Token": TOKEN}) == (200, "")

    play(scenario, trusted_proxies=("10.0.0.0/8",))


def test_a_trusted_proxy_says_whose_certificate_it_was_shown() -> None:
    async def scenario(here: House) -> None:
        async with aiohttp.ClientSession(here.site.url) as http:
            worker = Raw(http, "w")
            shown = {"X-Client-Cert-CN": "w", "X-Client-Cert-Verify": "SUCCESS"}
            assert await register(worker, "w", **shown) == (200, "")
            assert await register(worker, "v", **shown) == (403, "worker_mismatch")
            for verdict in ("NONE", "FAILED:self signed certificate", ""):
                told = await register(worker, "w", **shown | {"X-Client-Cert-Verify": verdict})
                assert told == (401, "token_missing")
            assert await register(worker, "w", **{"X-Client-Cert-CN": "w"}) == (401, "token_missing")
            nobody = {"X-Client-Cert-CN": "", "X-Client-Cert-Verify": "SUCCESS"}
            assert await register(worker, "w", **nobody) == (403, "certificate_without_name")

    play(scenario, trusted_proxies=("127.0.0.1",))
