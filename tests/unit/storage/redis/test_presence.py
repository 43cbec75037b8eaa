import asyncio
import logging

import pytest

from regista.testing.conformance.storage.kit import START, V1, ManualClock, at, running
from tests.redis_clock import HandMovedRedis
from tests.redis_server import RedisServer

from .conftest import Open


def test_a_store_that_was_emptied_is_told_once(
    mortal: RedisServer, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(open_store(mortal.url)) as store:
            for _ in range(3):
                await store.attend("me", [V1], 30)
            assert caplog.messages == []
            mortal.ask("FLUSHALL")
            for _ in range(3):
                await store.attend("me", [V1], 30)

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    (said,) = caplog.messages
    assert "the store has forgotten us: it was emptied" in said


def test_two_orchestrators_under_one_name_are_told_so(
    mortal: RedisServer, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(open_store(mortal.url)) as one, running(open_store(mortal.url)) as other:
            for _ in range(3):
                await one.attend("me", [V1], 30)
                await other.attend("me", [V1], 30)
                await other.attend("you", [V1], 30)

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert len(caplog.messages) == 2  # once each
    assert all("another orchestrator runs under our name 'me'" in said for said in caplog.messages)


def test_who_takes_the_place_of_a_dead_one_says_nothing(
    mortal: RedisServer, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(open_store(mortal.url)) as killed:
            await killed.attend("me", [V1], 30)
        async with running(open_store(mortal.url)) as next_life:
            for _ in range(3):
                await next_life.attend("me", [V1], 30)

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert caplog.messages == []


def test_who_was_silent_for_longer_than_a_lease_is_not_surprised_to_be_forgotten(
    mortal: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        clock = ManualClock(START)
        async with running(HandMovedRedis(mortal.url, clock, namespace=namespace)) as store:
            await store.attend("me", [V1], 30)
            clock.move(31)
            await store.attend("me", [V1], 30)

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert caplog.messages == []


def test_a_clock_that_jumps_is_no_store_that_was_emptied(
    mortal: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        clock, an_hour_ahead = ManualClock(START), ManualClock(at(3600))
        async with (
            running(HandMovedRedis(mortal.url, clock, namespace=namespace)) as store,
            running(HandMovedRedis(mortal.url, an_hour_ahead, namespace=namespace)) as other,
        ):
            await store.attend("me", [V1], 30)
            await other.attend("you", [V1], 30)
            assert await other.stranded(1) == []
            await store.attend("me", [V1], 30)

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert caplog.messages == []
