"""What every request passes, in which order, and what every answer carries out."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from regista import Config, OrchestratorEngine
from tests.acceptance.serving import House, serving
from tests.support import one_task


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)

    asyncio.run(main())


def test_who_is_not_let_in_is_not_told_what_else_is_wrong() -> None:
    async def body(house: House) -> None:
        path = "/api/v1/jobs?no_such=1"
        assert (await house.get(path, token=None)).code == "token_missing"
        assert (await house.get(path, token="wrong")).code == "token_unknown"
        assert (await house.get(path)).code == "unknown_parameter"

    run(body)


def test_what_is_refused_after_it_was_counted_tells_what_is_left() -> None:
    async def body(house: House) -> None:
        refused = await house.get("/api/v1/jobs?no_such=1")
        missing = await house.get("/api/v1/jobs/none")
        assert (refused.status, refused.headers["RateLimit-Remaining"]) == (400, "4")
        assert (missing.status, missing.headers["RateLimit-Remaining"]) == (404, "3")

    run(body, rate_limits={"read": "5/h"})


def test_a_stream_and_a_packed_answer_tell_what_is_left_too() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"text": "word " * 1000})
        packed = await house.get(f"/api/v1/jobs/{job['id']}", headers={"Accept-Encoding": "gzip"})
        stream = await house.get(f"/api/v1/jobs/{job['id']}/history?format=jsonl")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["RateLimit-Remaining"] == "4"
        assert stream.headers["Transfer-Encoding"] == "chunked"
        assert stream.headers["RateLimit-Remaining"] == "3"

    run(body, rate_limits={"read": "5/h"})


def test_a_client_is_known_by_its_token_whatever_it_says_of_a_certificate() -> None:
    async def body(house: House) -> None:
        for guess in range(4):
            await house.get("/api/v1/jobs", token="wrong-one", headers={"X-Worker-Token": str(guess)})
        # Too many guesses from here; who was good before is let in all the same, and nobody else is listened to.
        assert (await house.get("/api/v1/jobs")).status == 200
        assert (await house.get("/api/v1/jobs", headers={"X-Client-Cert-CN": "w1"})).status == 200
        assert (await house.get("/api/v1/jobs", token="t-bob")).status == 429

    async def known(house: House) -> None:
        assert (await house.get("/api/v1/jobs")).status == 200
        await body(house)

    run(known, rate_limits={"auth": "4/h"})


def test_who_was_known_on_a_connection_must_still_be_somebody_at_the_next_request(tmp_path: Path) -> None:
    guests = tmp_path / "clients.toml"
    guests.write_text('[acme]\ntoken = "t-acme"\n[bob]\ntoken = "t-bob"')
    config = Config(instance_id="i", worker_token="w", clients_config_path=str(guests))

    async def main() -> None:
        director = OrchestratorEngine("memory", config)
        site = await director.serve(port=0)

        async def ask(token: str) -> str:
            """Who the orchestrator takes us for."""
            async with http.get(site.url + "/api/v1/me", headers={"X-Client-Token": token}) as answer:
                said = await answer.json()
                return str(said.get("name", said.get("code")))

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
            assert [await ask(token) for token in ("t-acme", "t-acme", "t-bob", "t-acme", "t-x", "")] == [
                "acme", "acme", "bob", "acme", "token_unknown", "token_missing",
            ]  # fmt: skip
            assert await ask("t-acme") == "acme"
            guests.write_text('[bob]\ntoken = "t-bob"')
            assert director.reload()
            assert [await ask(token) for token in ("t-acme", "t-bob")] == ["token_unknown", "bob"]
        await director.stop()

    asyncio.run(main())
