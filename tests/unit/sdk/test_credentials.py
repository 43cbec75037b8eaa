"""What a worker comes in with: traded, renewed, signed with, and given up. Against a real orchestrator."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from regista.config import WorkerConfig
from regista.sdk.credentials import OrchestratorCredentials
from regista.sdk.transports.base import RegistrationRejected
from regista.workers.credentials import TokenLifetimes, WorkerTokenStore
from regista.workers.one_time_passwords import OneTimePasswords
from regista.workers.protocol.signing import verify
from tests.acceptance.house import TOKEN, House, house
from tests.acceptance.odd_kit import OddOrchestrator, says

Scenario = Callable[[House, aiohttp.ClientSession], Awaitable[None]]


def play(scenario: Scenario, **settings: Any) -> None:
    async def main() -> None:
        async with house(**settings) as here, aiohttp.ClientSession() as http:
            await scenario(here, http)

    asyncio.run(main())


def credentials(password: str = "", **settings: Any) -> OrchestratorCredentials:
    return OrchestratorCredentials("w", WorkerConfig(**settings), password)


async def password_of(here: House, worker_id: str = "w") -> str:
    storage, clock = here.director.storage, here.director.clock
    return (
        await OneTimePasswords(storage, WorkerTokenStore(storage, clock, TokenLifetimes())).make(worker_id)
    ).text


def test_a_configured_token_is_sent_as_it_is() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials()
        await mine.prepare(http, here.site.url, TOKEN)
        assert (mine.token, mine.is_short_lived) == (TOKEN, False)
        assert mine.headers == {"X-Worker-Token": TOKEN, "X-Worker-ID": "w"}
        assert not await mine.renew(http, here.site.url, TOKEN)

    play(scenario)


def test_where_that_is_wanted_it_is_traded_for_a_short_lived_one() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(use_sts=True)
        await mine.prepare(http, here.site.url, TOKEN)
        first = mine.token
        assert mine.is_short_lived
        assert first != TOKEN
        await mine.prepare(http, here.site.url, TOKEN)
        assert mine.token == first  # it is good for long yet

    play(scenario)


def test_a_password_is_traded_once_and_forgotten() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        secret = await password_of(here)
        mine = credentials(secret)
        await mine.prepare(http, here.site.url, "")
        assert mine.token.startswith("rst.w.")
        late = credentials(secret)
        with pytest.raises(RegistrationRejected, match="was used before"):
            await late.prepare(http, here.site.url, "")
        with pytest.raises(RegistrationRejected, match="the password is 'v''s"):
            await credentials(await password_of(here, "v")).prepare(http, here.site.url, "")

    play(scenario)


def test_an_answer_that_was_lost_is_had_again_by_the_same_request() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(await password_of(here))
        body = {"worker_id": "w", "request_id": mine._request_id}
        headers = {"X-Worker-Token": mine._password}
        # The request arrives, and its answer is never read.
        async with http.post(f"{here.site.url}/_worker/auth/token", json=body, headers=headers) as answer:
            told = await answer.json()
        await mine.prepare(http, here.site.url, "")
        assert mine.token == told["access_token"]

    play(scenario)


def test_it_is_renewed_before_it_is_over() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(use_sts=True)
        await mine.prepare(http, here.site.url, TOKEN)
        seen = {mine.token}
        keeping = asyncio.create_task(mine.refresh_forever(http, here.site.url))
        async with asyncio.timeout(5):
            while len(seen) < 3:
                seen.add(mine.token)
                await asyncio.sleep(0.02)
        keeping.cancel()

    play(scenario, sts_token_s=1.0)


def test_after_a_refusal_all_who_ask_get_the_same_new_one() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(use_sts=True)
        await mine.prepare(http, here.site.url, TOKEN)
        stale = mine.token
        ends = await asyncio.gather(*(mine.renew(http, here.site.url, stale) for _ in range(5)))
        assert ends == [True] * 5
        assert mine.token != stale

    play(scenario)


def test_a_login_that_was_ended_leaves_the_configured_token() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(use_sts=True)
        await mine.prepare(http, here.site.url, TOKEN)
        await WorkerTokenStore(here.director.storage, here.director.clock).revoke("w")
        assert await mine.renew(http, here.site.url, mine.token)
        assert (mine.token, mine.is_short_lived) == (TOKEN, False)
        other = credentials(await password_of(here))
        await other.prepare(http, here.site.url, "")
        await WorkerTokenStore(here.director.storage, here.director.clock).revoke("w")
        assert not await other.renew(http, here.site.url, other.token)

    play(scenario)


def test_nobody_there_is_an_error_of_the_network_and_the_password_is_kept() -> None:
    async def scenario(here: House, http: aiohttp.ClientSession) -> None:
        mine = credentials(await password_of(here))
        with pytest.raises(aiohttp.ClientError):
            await mine.prepare(http, "http://127.0.0.1:9", "")
        await mine.prepare(http, here.site.url, "")
        assert mine.is_short_lived

    play(scenario)


def test_a_body_is_signed_with_what_we_have() -> None:
    mine = credentials()
    mine._configured = "key"
    body = {"worker_id": "w", "data": {"n": 1.0, "none": None}}
    assert mine.sign_body(body) is body
    mine.signature_required = True
    said = mine.sign_body(body)
    assert said["security"]["signer_id"] == "w"
    assert verify(said, said["security"]["signature"], "key")


@pytest.mark.parametrize(("status", "later"), [(503, True), (429, True), (404, False), (501, False)])
async def test_an_orchestrator_that_gives_no_login_right_now_is_asked_again(status: int, later: bool) -> None:
    mine = credentials(use_sts=True)
    async with OddOrchestrator(patch=says({}, status)) as odd, aiohttp.ClientSession() as http:
        if later:
            with pytest.raises(aiohttp.ClientError, match=f"HTTP {status} for a login"):
                await mine.prepare(http, odd.url, TOKEN)
        for _ in range(2):
            with contextlib.suppress(aiohttp.ClientError):
                await mine.prepare(http, odd.url, TOKEN)
        assert odd.asked["patch"] == (3 if later else 1)
