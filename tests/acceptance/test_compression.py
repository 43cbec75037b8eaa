"""Packed answers and packed requests, at a running server."""

import asyncio
import gzip
import os
import zlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest
from aiohttp import web
from backports import zstd

from regista import Config, OrchestratorEngine
from tests.acceptance.serving import House, serving
from tests.support import one_task

#: Answers of this size are worth packing.
LARGE = {"text": "x" * 3000}
UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress}


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)

    asyncio.run(main())


async def raw(
    house: House, path: str, accept: str | None, token: str = "t-ada"
) -> tuple[Mapping[str, str], bytes]:
    """The answer as it came over the wire."""
    headers = {"X-Client-Token": token} | ({} if accept is None else {"Accept-Encoding": accept})
    skip = [] if accept is not None else ["Accept-Encoding"]
    async with (
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=skip) as http,
        http.get(house.url + path, headers=headers) as answer,
    ):
        return answer.headers, await answer.read()


@pytest.mark.parametrize(("accept", "coding"), [("gzip, zstd", "zstd"), ("gzip, deflate", "gzip")])
def test_a_large_answer_is_packed_as_the_asker_likes(accept: str, coding: str) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", LARGE)
        headers, packed = await raw(house, f"/api/v1/jobs/{job['id']}", accept)
        assert headers["Content-Encoding"] == coding
        assert headers["Vary"] == "Accept-Encoding"
        assert int(headers["Content-Length"]) == len(packed) < 2000
        assert msgspec.json.decode(UNPACK[coding](packed))["id"] == job["id"]

    run(body)


@pytest.mark.parametrize("accept", [None, "identity", "br", "gzip;q=0"])
def test_whoever_does_not_ask_for_it_gets_it_as_it_is_and_caches_are_told(accept: str | None) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", LARGE)
        headers, plain = await raw(house, f"/api/v1/jobs/{job['id']}", accept)
        assert "Content-Encoding" not in headers
        assert headers["Vary"] == "Accept-Encoding"
        assert msgspec.json.decode(plain)["id"] == job["id"]

    run(body)


def test_a_small_answer_stays_as_it_is() -> None:
    async def body(house: House) -> None:
        headers, small = await raw(house, "/_public/status", "gzip, zstd")
        assert len(small) < 1024
        assert "Content-Encoding" not in headers

    run(body)


def test_a_very_large_answer_is_packed_too_and_so_is_a_problem() -> None:
    async def body(house: House) -> None:
        batch = {"jobs": [{"blueprint": "script"}] * 500 + [{"blueprint": "x" * 900}]}
        async with house.session.post(
            f"{house.url}/api/v1/jobs:batch", json=batch, headers={"X-Client-Token": "t-ada"}
        ) as answer:
            assert answer.headers["Content-Encoding"] == "zstd"
            assert len((await answer.json())["items"]) == 501
        headers, packed = await raw(house, f"/api/v1/jobs/{'x' * 3000}", "gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert msgspec.json.decode(gzip.decompress(packed))["code"] == "job_not_found"

    run(body)


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/jobs/{id}/events"])
def test_a_stream_is_never_packed(path: str) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", LARGE)
        headers = {"X-Client-Token": "t-ada", "Accept-Encoding": "gzip, zstd"}
        async with house.session.get(house.url + path.format(id=job["id"]), headers=headers) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert "Content-Encoding" not in answer.headers

    run(body)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "identity": lambda body: body,
    "GZIP": gzip.compress,
}


@pytest.mark.parametrize("coding", PACK)
def test_a_request_may_be_packed(coding: str) -> None:
    async def body(house: House) -> None:
        sent = PACK[coding](msgspec.json.encode({"blueprint": "script", "input": LARGE}))
        answer = await house.post("/api/v1/jobs", raw=sent, headers={"Content-Encoding": coding})
        assert answer.status == 202, answer.body

    run(body)


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, gzip", "nonsense", "gzip,zstd"])
def test_another_packing_is_refused_and_the_known_ones_named(coding: str) -> None:
    async def body(house: House) -> None:
        answer = await house.post("/api/v1/jobs", raw=b"{}", headers={"Content-Encoding": coding})
        assert (answer.status, answer.code) == (415, "unsupported_encoding")
        assert answer.headers["Accept-Encoding"] == "identity, gzip, deflate, zstd"
        worker = await house.post(
            "/_worker/workers/register",
            raw=b"{}",
            headers={"Content-Encoding": coding, "X-Worker-Token": "t-worker"},
        )
        assert worker.status == 415

    run(body)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_a_bomb_is_refused_at_the_largest_body_and_takes_no_memory(coding: str) -> None:
    zeros = bytes(2**20)
    if coding == "zstd":
        packer: Any = zstd.ZstdCompressor()
        bomb = b"".join([*(packer.compress(zeros) for _ in range(128)), packer.flush()])
    else:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
        bomb = b"".join([*(packer.compress(zeros) for _ in range(128)), packer.flush()])
    assert len(bomb) < 2**20

    async def body(house: House) -> None:
        process = psutil.Process(os.getpid())
        before = process.memory_info().rss
        for path, headers in (
            ("/api/v1/jobs", {}),
            ("/api/v1/jobs:batch", {}),
            ("/_worker/workers/register", {"X-Worker-Token": "t-worker"}),
        ):
            answer = await house.post(path, raw=bomb, headers={"Content-Encoding": coding, **headers})
            assert (answer.status, answer.code) == (413, "body_too_large")
        assert process.memory_info().rss - before < 100 * 2**20

    run(body)


async def test_a_packed_request_is_read_where_somebody_else_serves_the_application_too() -> None:
    director = OrchestratorEngine("memory", Config(client_token="t", worker_token="w"))
    director.register_blueprint(one_task())
    runner = web.AppRunner(director.app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        headers = {"X-Client-Token": "t", "Content-Encoding": "gzip"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{url}/api/v1/jobs", data=gzip.compress(b'{"blueprint": "script"}'), headers=headers
            ) as answer,
        ):
            assert answer.status == 202
    finally:
        await runner.cleanup()
