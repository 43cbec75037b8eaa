"""Who may do what: every operation of the API, tried as nobody, as a stranger, as the owner and as an operator.

An operation that is added says by its path and its problems which kind it is; what it really does is tried here, and
docs/howto/access.md must name those that are for operators alone.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from regista import StateMachineBlueprint
from regista.api.app import NOUNS
from regista.api.curl_samples import BODIES
from regista.api.routes import Operation
from regista.model.delivery import dead_write
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks
from tests.support import script
from tests.webhook_kit import delivery

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "access.md"
EVERY = {one.id: one for noun in NOUNS for one in noun if one.kind == "client"}
#: What stands in a path → what it names. Whatever is of one client is made anew for each try.
OWNED = ("job_id", "delivery_id")
OPERATORS = [name for name, one in EVERY.items() if one.operator]
OWN = [name for name, one in EVERY.items() if any(f"{{{part}}}" in one.path for part in OWNED)]
SHARED = [name for name in EVERY if name not in OPERATORS and name not in OWN]


class Found(msgspec.Struct, frozen=True):
    """What an answer was, as far as it matters here."""

    status: int
    code: str
    body: str


def quick() -> StateMachineBlueprint:
    return script(lambda context, actions: actions.transition_to("done"), "done", name="BLUEPRINT")


async def ask(house: House, operation: Operation, token: str | None, ids: dict[str, str]) -> Found:
    """Call it; of a stream only the beginning is read."""
    path = re.sub(r"{(\w+)}", lambda part: ids.get(part[1], part[1]), operation.paths()[0])
    body = BODIES.get(operation.id)
    data = None if body is None else msgspec.json.encode(body)
    headers = {} if token is None else {"X-Client-Token": token}
    async with house.session.request(operation.method, house.url + path, data=data, headers=headers) as got:
        text = await _beginning(got)
        problem = got.content_type == "application/problem+json"
        return Found(got.status, msgspec.json.decode(text)["code"] if problem else "", text)


async def _beginning(answer: aiohttp.ClientResponse) -> str:
    """All of an answer that ends, and what comes at once of one that does not."""
    if answer.content_type != "text/event-stream":
        return (await answer.read()).decode(errors="replace")
    read = b""
    try:
        async with asyncio.timeout(0.3):
            async for chunk in answer.content.iter_any():
                read += chunk
    except TimeoutError:
        pass
    return read.decode()


async def things_of_ada(house: House) -> dict[str, str]:
    """A job and a dead letter of one client, and what belongs to nobody."""
    job = await house.submit("asks", {"note": "for-ada-alone"}, search_attributes={})
    dead = delivery(job=job["id"], client="ada", url="https://for-ada-alone.example.com")
    await house.director.storage.put_records([dead_write(dead)])
    return {"job_id": job["id"], "delivery_id": dead.id, "name": "BLUEPRINT", "worker_id": "WORKER"}


@pytest.mark.parametrize("name", EVERY)
async def test_nobody_comes_in_without_a_token(name: str) -> None:
    async with serving(quick(), asks()) as house:
        ids = await things_of_ada(house)
        for token in (None, "t-nobody"):
            found = await ask(house, EVERY[name], token, ids)
            assert (found.status, found.code) in ((401, "token_missing"), (401, "token_unknown"))
            assert "for-ada-alone" not in found.body


@pytest.mark.parametrize("name", OWN)
async def test_what_is_of_one_client_does_not_exist_for_another(name: str) -> None:
    async with serving(quick(), asks()) as house:
        ids = await things_of_ada(house)
        nothing = {**ids, "job_id": "no-such-job", "delivery_id": "no-such-delivery"}
        stranger = await ask(house, EVERY[name], "t-bob", ids)
        absent = await ask(house, EVERY[name], "t-bob", nothing)
        owner = await ask(house, EVERY[name], "t-ada", ids)
        operator = await ask(house, EVERY[name], "t-ops", await things_of_ada(house))

        # The very words that are said about what was never there, and nothing of the job.
        assert (stranger.status, stranger.code) == (absent.status, absent.code)
        assert stranger.status == 404
        assert "for-ada-alone" not in stranger.body
        for known in (owner, operator):
            assert known.status not in (401, 403)
            assert (known.status, known.code) != (stranger.status, stranger.code)


@pytest.mark.parametrize("name", OPERATORS)
async def test_what_is_for_operators_is_refused_to_clients(name: str) -> None:
    async with serving(quick(), asks()) as house:
        ids = await things_of_ada(house)
        for token in ("t-ada", "t-bob"):
            found = await ask(house, EVERY[name], token, ids)
            assert (found.status, found.code) == (403, "operators_only")
        assert (await ask(house, EVERY[name], "t-ops", ids)).status not in (401, 403)


@pytest.mark.parametrize("name", SHARED)
async def test_what_everybody_may_ask_for_tells_nobody_of_anothers_jobs(name: str) -> None:
    async with serving(quick(), asks()) as house:
        ids = await things_of_ada(house)
        found = await ask(house, EVERY[name], "t-bob", ids)
        assert found.status not in (401, 403)
        assert "for-ada-alone" not in found.body
        assert ids["job_id"] not in found.body


async def test_waiting_for_many_and_counting_tell_nobody_of_anothers_jobs() -> None:
    async with serving(asks()) as house:
        ids = await things_of_ada(house)
        waited = await house.post("/api/v1/jobs:wait", {"ids": [ids["job_id"]], "timeout": 0}, token="t-bob")
        assert waited.json == {"items": [], "pending": [], "unknown": [ids["job_id"]]}
        # The same key is another job for another client.
        body: dict[str, Any] = {"blueprint": "asks", "idempotency_key": "k"}
        created = [await house.post("/api/v1/jobs", body, token=token) for token in ("t-ada", "t-bob")]
        mine, yours = (one.json["id"] for one in created)
        assert mine != yours


def test_the_page_names_exactly_what_is_for_operators_alone() -> None:
    table = PAGE.read_text().partition("## What an operator may do")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| `(GET|POST|DELETE|PUT) (/[^`]+)`", table, re.MULTILINE))
    assert told == {(EVERY[name].method, EVERY[name].paths()[0]) for name in OPERATORS}
