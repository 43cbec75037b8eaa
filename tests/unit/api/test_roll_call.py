"""Idle workers are heard together."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from regista.api.roll_call import RollCall
from regista.api.worker_stream import Channel
from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.errors import StorageUnavailable
from regista.model import Worker
from regista.workers.service import WorkerService


class Service:
    """Renews the leases of whoever is not busy."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.busy: set[str] = set()
        self.error: Exception | None = None

    async def renew(self, seats: Sequence[ConnectedWorker]) -> list[bool]:
        self.asked.append([connected.worker.id for connected in seats])
        if self.error is not None:
            raise self.error
        return [connected.worker.id not in self.busy for connected in seats]


class End:
    """The orchestrator's end of a worker's stream."""

    def __init__(self, name: str) -> None:
        self.seat = ConnectedWorker(
            Worker(id=name, skills=("work",)), CallbackConnection(lambda tasks: None, lambda attempts: None)
        )
        self.told: list[str | float] = []

    def answer(self) -> None:
        self.told.append("heard")

    def hear_later(self, since: float) -> None:
        self.told.append(since)


class Hall:
    """A roll call, and whoever is there."""

    def __init__(self, names: str, lease_s: float = 1.0) -> None:
        self.service = Service()
        self.roll = RollCall(cast(WorkerService, self.service), lease_s)
        self.ends = {name: End(name) for name in names}

    def note(self, names: str, since: float = 0.0) -> None:
        for name in names:
            end = self.ends[name]
            self.roll.note(cast(Channel, end), end.seat, since)

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(2):
            while sum(len(end.told) for end in self.ends.values()) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def test_those_who_beat_within_a_moment_are_written_down_together_and_each_is_answered() -> None:
    hall = Hall("abc")
    hall.note("ab")
    hall.note("c")
    assert hall.service.asked == []
    await hall.until_told(3)
    assert hall.service.asked == [["a", "b", "c"]]
    assert [end.told for end in hall.ends.values()] == [["heard"]] * 3
    hall.note("b")
    await hall.until_told(4)
    assert hall.service.asked[1:] == [["b"]]


async def test_of_whom_there_is_more_to_say_is_heard_like_any_other_as_of_the_moment_when_it_beat() -> None:
    hall = Hall("abc")
    hall.service.busy = {"b"}
    hall.note("ab", since=7.0)
    hall.note("c", since=8.0)
    await hall.until_told(3)
    assert [end.told for end in hall.ends.values()] == [["heard"], [7.0], ["heard"]]


async def test_when_the_store_cannot_be_asked_every_beat_is_heard_by_itself_and_the_next_roll_is_called() -> (
    None
):
    hall = Hall("ab")
    hall.service.error = RuntimeError("no store")
    hall.note("ab", since=3.0)
    await hall.until_told(2)
    hall.service.error = None
    hall.note("a")
    await hall.until_told(3)
    assert [end.told for end in hall.ends.values()] == [[3.0, "heard"], [3.0]]


def test_an_answer_that_fails_is_told_of_and_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        hall = Hall("ab")

        def fail() -> None:
            raise ValueError("broken")

        hall.ends["a"].answer = fail  # type: ignore[method-assign]
        hall.note("a")
        await asyncio.sleep(0.05)
        hall.note("b")
        await hall.until_told(1)
        assert hall.ends["b"].told == ["heard"]

    asyncio.run(main())
    assert "broken" in caplog.text


async def test_many_beats_at_once_leave_room_for_others() -> None:
    hall = Hall("a")
    hall.note("a" * 450)
    turns = 0
    while len(hall.ends["a"].told) < 450:
        await asyncio.sleep(0)
        turns += 1
    assert [len(names) for names in hall.service.asked] == [200, 200, 50]
    assert turns > 2


@pytest.mark.parametrize("wait_s", [0.0, 0.02])
async def test_a_roll_call_that_is_stopped_answers_nobody_and_may_be_stopped_again(wait_s: float) -> None:
    hall = Hall("a")
    await hall.roll.stop()
    hall.note("a")
    await asyncio.sleep(wait_s)
    told = list(hall.ends["a"].told)
    await hall.roll.stop()
    await hall.roll.stop()
    await asyncio.sleep(0.03)
    assert hall.ends["a"].told == told


@pytest.mark.parametrize(("error", "told"), [(StorageUnavailable("away"), False), (TypeError("a bug"), True)])
def test_a_store_that_is_away_says_so_itself_and_a_bug_is_told(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        hall = Hall("a")
        hall.service.error = error
        hall.note("a", since=3.0)
        await hall.until_told(1)

    asyncio.run(main())
    assert ("the roll call failed" in caplog.text) is told
