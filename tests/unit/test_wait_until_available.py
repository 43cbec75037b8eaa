"""A server that is away when we start."""

import asyncio
import logging

import pytest

from regista.aio import wait_until_available
from regista.errors import StorageError, StorageUnavailable


class Late:
    """A part whose server is away for some tries."""

    def __init__(self, tries: int, error: type[StorageError] = StorageUnavailable) -> None:
        self._tries = tries
        self._error = error
        self.asked = 0

    async def start(self) -> None:
        self.asked += 1
        if self.asked <= self._tries:
            raise self._error("the store cannot be reached")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[attr-defined]


def test_it_is_waited_for_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    late = Late(3)
    asyncio.run(wait_until_available(late.start, 10))
    assert late.asked == 4
    assert said(caplog) == ["store_awaited", "store_came"]
    assert "REGISTA_STORE_WAIT_SECONDS" in caplog.text


def test_one_that_is_there_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    late = Late(0)
    asyncio.run(wait_until_available(late.start, 0))
    assert (late.asked, said(caplog)) == (1, [])


def test_when_the_time_is_up_the_start_fails_with_what_is_wrong() -> None:
    late = Late(1000)
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        asyncio.run(wait_until_available(late.start, 0.15))
    assert late.asked == 3  # at once, after the first pause, and at the very end


def test_with_nothing_to_wait_it_is_asked_once() -> None:
    late = Late(1000)
    with pytest.raises(StorageUnavailable):
        asyncio.run(wait_until_available(late.start, 0))
    assert late.asked == 1


def test_what_is_wrong_and_not_away_ends_the_start_at_once() -> None:
    late = Late(1000, StorageError)
    with pytest.raises(StorageError):
        asyncio.run(wait_until_available(late.start, 60))
    assert late.asked == 1
