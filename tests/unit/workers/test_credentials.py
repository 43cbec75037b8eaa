"""Short-lived worker tokens: given out, renewed, taken back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.workers import credentials as room
from regista.workers.credentials import MOST_LOGINS, SHELF, TokenLifetimes, TokenRefused, WorkerTokenStore

Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A store, a clock, and two instances that share them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(clock=self.clock)
        self.here, self.there = (
            WorkerTokenStore(self.storage, self.clock, TokenLifetimes(access_s=100, refresh_s=1000))
            for _ in range(2)
        )

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


def test_a_token_is_known_to_every_instance_and_lies_nowhere_as_it_is() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")

        assert (await world.there.find(tokens.access_token)).worker_id == "w"
        (item,) = await world.storage.records(SHELF)
        for token in (tokens.access_token, tokens.refresh_token):
            secret = token.rpartition(".")[2].encode()
            assert secret not in item.value
            assert secret not in item.key.encode()

    play(scenario)


def test_neither_a_refresh_token_nor_a_changed_one_lets_in() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        head, _, secret = tokens.access_token.rpartition(".")
        for wrong in (
            tokens.refresh_token,
            f"{head}.{secret[::-1]}",
            f"{head}.",
            tokens.access_token + "x",
            tokens.access_token.replace(".w.", ".v."),
            "rst.a.b.c",
            "rst....",
            "rst.\udcff.b.c",
            "",
        ):
            assert await world.refused(world.here.find(wrong)) == "token_unknown"

    play(scenario)


def test_a_token_is_over_when_its_time_is() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        world.clock.move(99)
        await world.here.find(tokens.access_token)
        world.clock.move(2)
        assert await world.refused(world.here.find(tokens.access_token)) == "token_expired"
        # The login goes on: its refresh token is good for longer.
        assert await world.here.living(tokens.access_token) is not None
        again = await world.here.refresh(tokens.refresh_token)
        await world.here.find(again.access_token)

    play(scenario)


def test_a_login_that_nobody_renews_ends() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        world.clock.move(1001)
        assert await world.refused(world.here.refresh(tokens.refresh_token)) == "token_unknown"
        assert await world.here.living(tokens.access_token) is None

    play(scenario)


def test_what_is_on_its_way_with_the_token_before_still_arrives() -> None:
    async def scenario(world: World) -> None:
        old = await world.here.issue("w")
        await world.here.refresh(old.refresh_token)
        await world.here.find(old.access_token)
        world.clock.move(room.OVERLAP_S + 1)
        assert await world.refused(world.here.find(old.access_token)) == "token_expired"

    play(scenario)


def test_a_used_refresh_token_that_comes_back_ends_the_whole_family(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        first = await world.here.issue("w")
        other = await world.here.issue("w")
        second = await world.here.refresh(first.refresh_token)
        third = await world.there.refresh(second.refresh_token)

        assert await world.refused(world.here.refresh(first.refresh_token)) == "token_reused"

        for tokens in (first, second, third):
            assert await world.refused(world.here.find(tokens.access_token)) == "token_unknown"
            assert await world.refused(world.there.refresh(tokens.refresh_token)) == "token_unknown"
        await world.here.find(other.access_token)  # another login of the same worker
        assert first.refresh_token not in caplog.text

    play(scenario)
    assert "a used refresh token of w came back" in caplog.text


def test_a_guessed_refresh_token_ends_nothing() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        guess = tokens.refresh_token[:-4] + "AAAA"
        assert await world.refused(world.here.refresh(guess)) == "token_unknown"
        await world.here.find(tokens.access_token)

    play(scenario)


def test_of_two_at_once_with_one_refresh_token_one_wins_and_both_are_out() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        ends = await asyncio.gather(
            world.here.refresh(tokens.refresh_token),
            world.there.refresh(tokens.refresh_token),
            return_exceptions=True,
        )
        (refusal,) = [end for end in ends if isinstance(end, TokenRefused)]
        (won,) = [end for end in ends if not isinstance(end, BaseException)]
        assert refusal.code == "token_reused"
        assert await world.refused(world.here.find(won.access_token)) == "token_unknown"

    play(scenario)


def test_a_repeated_request_is_answered_like_the_first_until_the_answer_is_used() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        first = await world.here.refresh(tokens.refresh_token, "my-request")
        assert await world.there.refresh(tokens.refresh_token, "my-request") == first
        world.clock.move(50)
        assert await world.there.refresh(tokens.refresh_token, "my-request") == first
        await world.here.refresh(first.refresh_token, "my-next")
        assert await world.refused(world.here.refresh(tokens.refresh_token, "my-request")) == "token_reused"

    play(scenario)


def test_a_repeat_with_a_leeway_is_answered_for_as_long_as_that() -> None:
    async def scenario(world: World) -> None:
        tokens = await world.here.issue("w")
        first = await world.here.refresh(tokens.refresh_token, "all", leeway_s=5)
        assert await world.there.refresh(tokens.refresh_token, "all", leeway_s=5) == first
        world.clock.move(6)
        assert await world.refused(world.here.refresh(tokens.refresh_token, "all", 5)) == "token_reused"

    play(scenario)


def test_revoked_is_every_login_of_that_worker_and_of_no_other() -> None:
    async def scenario(world: World) -> None:
        mine = [await world.here.issue("w") for _ in range(3)]
        others = [await world.here.issue(name) for name in ("v", "w-2", "w2", "W", "x")]

        assert await world.there.revoke("w") == 3
        assert await world.there.revoke("w") == 0

        for tokens in mine:
            assert await world.refused(world.here.find(tokens.access_token)) == "token_unknown"
            assert await world.refused(world.here.refresh(tokens.refresh_token)) == "token_unknown"
        for tokens in others:
            await world.here.find(tokens.access_token)

    play(scenario)


def test_a_worker_has_only_so_many_logins_and_the_oldest_ends() -> None:
    async def scenario(world: World) -> None:
        made = []
        for _ in range(MOST_LOGINS + 2):
            made.append(await world.here.issue("w"))
            world.clock.move(1)
        for tokens in made[:2]:
            assert await world.refused(world.here.find(tokens.access_token)) == "token_unknown"
        for tokens in made[2:]:
            await world.here.find(tokens.access_token)

    play(scenario)


def test_where_others_write_too_a_login_is_believed_for_a_moment_only() -> None:
    async def scenario(world: World) -> None:
        world.storage.shared = True
        tokens = await world.here.issue("w")
        await world.here.find(tokens.access_token)
        await world.there.revoke("w")
        world.clock.move(room.BELIEVED_S)
        assert await world.refused(world.here.find(tokens.access_token)) == "token_unknown"

    play(scenario)


def test_a_fingerprint_is_the_same_everywhere_and_says_nothing_of_the_token() -> None:
    async def scenario(world: World) -> None:
        one = await world.here.fingerprint("a-token")
        assert one == await world.there.fingerprint("a-token")
        assert one != await world.there.fingerprint("another")
        elsewhere = World()
        assert one != await elsewhere.here.fingerprint("a-token")

    play(scenario)
