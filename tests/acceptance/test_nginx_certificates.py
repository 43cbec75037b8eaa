"""Client certificates through a real nginx with the configuration of deploy/, and headers that are forged."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance.edge import Edge
from tests.acceptance.house import OLD
from tests.acceptance.nginx_kit import TOKENS, Caller, until
from tests.certificates import Authority

pytestmark = pytest.mark.timeout(20)

#: What a worker without a certificate would like an orchestrator to believe.
FORGED = {
    "X-Client-Cert-CN": "render-7",
    "X-Client-Cert-Verify": "SUCCESS",
    "X-Client_Cert-CN": "render-7",
    "X-Forwarded-Client-Cert": 'Subject="CN=render-7"',
    "X-Forwarded-For": "127.0.0.1",
    "X-SSL-Client-S-DN": "CN=render-7",
}


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """nginx that knows client certificates, before one orchestrator that believes it."""
    folder = tmp_path_factory.mktemp("mutual")
    storage = f"sqlite:{folder / 'jobs.db'}"
    edge = Edge(folder, [storage], mutual=True, REGISTA_TRUSTED_PROXIES="127.0.0.1")
    try:
        edge.start()
        edge.nginx.authority.sign("worker:render-7", "worker:render-8")
        yield edge
    finally:
        edge.stop()


@asynccontextmanager
async def worker(edge: Edge, own: Authority | None = None, name: str = "") -> AsyncIterator[Caller]:
    trust = ssl.create_default_context(cafile=str(edge.nginx.ca))
    if own is not None:
        trust.load_cert_chain(own.cert(name), own.key(name))
    async with edge.nginx.session(trust=trust) as caller:
        yield caller


async def register(
    caller: Caller, worker_id: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    body: dict[str, Any] = {"worker_id": worker_id, **OLD}
    answer = await caller.ask("POST", "/_worker/workers/register", json=body, headers=dict(headers or {}))
    return answer.status, "" if answer.status == 200 else answer.code


async def test_the_certificate_that_nginx_was_shown_says_which_worker_it_is(edge: Edge) -> None:
    async with worker(edge, edge.nginx.authority, "render-7") as seven:
        assert await register(seven, "render-7") == (200, "")
        assert await register(seven, "render-8") == (403, "worker_mismatch")
        token = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
        assert await register(seven, "render-8", token) == (403, "worker_mismatch")
        # Whatever it says about itself is replaced by what nginx has seen.
        forged = {**FORGED, "X-Client-Cert-CN": "render-8"}
        assert await register(seven, "render-8", forged) == (403, "worker_mismatch")
        assert await register(seven, "render-7", forged) == (200, "")


async def test_without_a_certificate_a_token_does_and_forged_headers_do_not(edge: Edge) -> None:
    async with worker(edge) as nobody:
        assert await register(nobody, "render-7") == (401, "token_missing")
        assert await register(nobody, "render-7", FORGED) == (401, "token_missing")
        token = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
        assert await register(nobody, "render-7", token) == (200, "")


async def test_a_certificate_of_another_authority_is_refused_by_nginx(edge: Edge, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "render-7")

    async with worker(edge, stranger, "render-7") as theirs:
        token = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
        assert await register(theirs, "render-7", token) == (400, "certificate_refused")


@pytest.mark.parametrize(
    "subject",
    [
        "/O=x,CN=render-7",
        "/O=x,CN=render-7/CN=other",
        "/CN=other/CN=render-7",
        r"/O=x\+CN=render-7",
        "/O=none",
    ],
)
async def test_a_subject_that_only_looks_like_a_name_names_nobody(edge: Edge, subject: str) -> None:
    edge.nginx.authority.subject("odd", subject)

    async with worker(edge, edge.nginx.authority, "odd") as odd:
        for name in ("render-7", "other"):
            assert await register(odd, name) == (403, "certificate_without_name")


def test_headers_that_come_past_nginx_are_not_believed(edge: Edge) -> None:
    async def main() -> None:
        # From an address that is not the proxy's, straight to the orchestrator.
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0), family=socket.AF_INET)
        async with aiohttp.ClientSession(connector=connector) as http:
            beside = Caller(edge.orchestrators[0].url, http)
            assert await register(beside, "render-7", FORGED) == (401, "token_missing")
            token = {"X-Worker-Token": TOKENS["WORKER_TOKEN"]}
            assert await register(beside, "free", FORGED | token) == (200, "")

    asyncio.run(main())
    logged = (edge.folder / "orchestrator-1.log").read_text()
    assert "X-Client-Cert-CN from 127.0.0.2 is ignored" in logged


def test_our_worker_streams_through_it_with_nothing_but_its_certificate(edge: Edge) -> None:
    own = edge.nginx.authority
    settings = {
        "TLS_CERT_PATH": own.cert("render-8"),
        "TLS_KEY_PATH": own.key("render-8"),
        "TLS_CA_PATH": own.ca,
    }
    logged = edge.worker(WORKER_ID="render-8", WORKER_TOKEN="", **settings)
    until(lambda: "by stream" in logged(), "the stream")
    told = edge.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")
    assert told.splitlines()[-1] == '"Hello, Ada!"'
    edge.dismiss()
