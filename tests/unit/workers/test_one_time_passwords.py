"""One-time passwords: good once, for minutes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.workers.credentials import TokenRefused, WorkerTokens, WorkerTokenStore
from regista.workers.one_time_passwords import LIFETIME_S, SHELF, OneTimePasswords, WrongWorker

Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A store, a clock, and two instances that share them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(clock=self.clock)
        self.credentials = WorkerTokenStore(self.storage, self.clock)
        self.here = OneTimePasswords(self.storage, self.credentials)
        self.there = OneTimePasswords(self.storage, WorkerTokenStore(self.storage, self.clock))

    async def refused(self, asked: Awaitable[object]) -> str:
        with pytest.raises(TokenRefused) as refusal:
            await asked
        return refusal.value.code


def play(scenario: Scenario) -> None:
    async def main() -> None:
        world = World()
        await world.storage.start()
        try:
            await scenario(world)
        finally:
            await world.storage.stop()

    asyncio.run(main())


def test_it_is_traded_for_a_login_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make("w")

        tokens = await world.there.trade(made.text, "w")

        assert (await world.credentials.find(tokens.access_token)).worker_id == "w"
        assert await world.refused(world.here.trade(made.text, "w")) == "password_used"
        await world.credentials.find(tokens.access_token)  # whoever came second changes nothing
        assert made.text not in caplog.text

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "a used one-time password came back, from w" in caplog.text


def test_it_lies_in_the_store_as_a_hash() -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make()
        (item,) = await world.storage.records(SHELF)
        secret = made.text.removeprefix("rop.").encode()
        assert secret not in item.value
        assert secret not in item.key.encode()

    play(scenario)


def test_its_time_is_five_minutes() -> None:
    async def scenario(world: World) -> None:
        early, late = await world.here.make("w"), await world.here.make("w")
        world.clock.move(LIFETIME_S - 1)
        await world.here.trade(early.text, "w")
        world.clock.move(2)
        assert await world.refused(world.here.trade(late.text, "w")) == "password_unknown"

    assert LIFETIME_S == 300
    play(scenario)


def test_of_two_at_once_one_wins() -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make("w")
        ends = await asyncio.gather(
            *(each.trade(made.text, "w") for each in (world.here, world.there) * 5), return_exceptions=True
        )
        (won,) = [end for end in ends if isinstance(end, WorkerTokens)]
        assert {end.code for end in ends if isinstance(end, TokenRefused)} == {"password_used"}
        assert len(ends) == 10
        await world.credentials.find(won.access_token)

    play(scenario)


def test_a_repeat_of_the_request_is_answered_like_the_first() -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make("w")
        first = await world.here.trade(made.text, "w", "my-request")
        assert await world.there.trade(made.text, "w", "my-request") == first
        assert await world.refused(world.there.trade(made.text, "w", "another")) == "password_used"

    play(scenario)


def test_one_for_a_certain_worker_is_no_good_to_another_and_stays_good() -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make("w")
        with pytest.raises(WrongWorker):
            await world.here.trade(made.text, "v")
        await world.here.trade(made.text, "w")

    play(scenario)


def test_one_for_anybody_is_whose_it_was_first() -> None:
    async def scenario(world: World) -> None:
        made = await world.here.make()
        assert await world.here.owner(made.text) == ""
        await world.here.trade(made.text, "w", "request")
        assert await world.here.owner(made.text) == "w"
        with pytest.raises(WrongWorker):
            await world.here.trade(made.text, "v", "request")

    play(scenario)


def test_what_is_no_password_is_not_even_looked_for() -> None:
    async def scenario(world: World) -> None:
        for text in ("", "rop", "rst.a.b.c", "rop.", "rop.x"):
            assert await world.refused(world.here.trade(text, "w")) == "password_unknown"
            assert await world.here.owner(text) is None

    play(scenario)


def test_revoked_are_those_of_that_worker_used_or_not() -> None:
    async def scenario(world: World) -> None:
        unused, used, other = [await world.here.make(name) for name in ("w", "w", "v")]
        await world.here.trade(used.text, "w", "request")
        await world.credentials.revoke("w")

        assert await world.here.revoke("w") == 1

        for made in (unused, used):
            assert await world.refused(world.here.trade(made.text, "w", "request")) == "password_unknown"
        await world.here.trade(other.text, "v")

    play(scenario)
