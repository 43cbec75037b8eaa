import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from regista.errors import StorageFailed, StorageUnavailable
from regista.storage.group_commit import GroupCommit


class Disk:
    """Keeps the batches that were flushed; each flush waits until it is let through."""

    def __init__(self, gated: bool = False) -> None:
        self.gates: list[asyncio.Event] = []
        self.flushed: list[list[str]] = []
        self.begun: list[list[str]] = []
        self.error: BaseException | None = None
        self._gated = gated
        self.group: GroupCommit[list[str]] = GroupCommit(list, self._flush)

    async def _flush(self, batch: list[str]) -> None:
        self.begun.append(batch)
        if self._gated:
            self.gates.append(asyncio.Event())
            await self.gates[-1].wait()
        if self.error is not None:
            raise self.error
        self.flushed.append(batch)

    async def write(self, word: str) -> None:
        self.group.batch().append(word)
        await self.group.wait(self.group.mark_dirty())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def play(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def test_writers_of_one_turn_share_one_flush() -> None:
    async def body() -> None:
        disk = Disk()
        await asyncio.gather(*(disk.write(str(n)) for n in range(100)))
        assert disk.flushed == [[str(n) for n in range(100)]]
        assert disk.group.flushed == 1

    play(body())


def test_what_comes_while_the_disk_works_is_the_next_flush() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        first = asyncio.create_task(disk.write("a"))
        await turns()
        later = [asyncio.create_task(disk.write(word)) for word in "bcd"]
        await turns()
        assert disk.begun == [["a"]]
        disk.gates[0].set()
        await first
        await turns()
        assert disk.begun == [["a"], ["b", "c", "d"]]
        disk.gates[1].set()
        await asyncio.gather(*later)
        assert disk.flushed == [["a"], ["b", "c", "d"]]

    play(body())


def test_a_writer_is_answered_only_after_its_own_flush() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        first = asyncio.create_task(disk.write("a"))
        await turns()
        second = asyncio.create_task(disk.write("b"))
        await turns()
        assert (first.done(), second.done(), disk.group.flushed) == (False, False, 0)
        disk.gates[0].set()
        await turns()
        assert (first.done(), second.done(), disk.group.flushed) == (True, False, 1)
        disk.gates[1].set()
        await turns()
        assert (second.done(), disk.group.flushed) == (True, 2)

    play(body())


def test_whoever_was_written_first_is_answered_first() -> None:
    async def body() -> None:
        disk = Disk()
        answered: list[int] = []

        async def write(n: int) -> None:
            await turns(n % 3)
            await disk.write(str(n))
            answered.append(n)

        await asyncio.gather(*(write(n) for n in range(9)))
        assert answered == [int(word) for batch in disk.flushed for word in batch]

    play(body())


def test_waiting_for_what_is_durable_does_not_wait() -> None:
    async def body() -> None:
        disk = Disk()
        await disk.write("a")
        await disk.group.wait(0)
        await disk.group.wait(1)
        assert disk.flushed == [["a"]]

    play(body())


def test_a_failed_flush_is_final_for_those_who_wait_and_those_who_come() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        disk.error = OSError("no space left")
        first = asyncio.create_task(disk.write("a"))
        await turns()
        second = asyncio.create_task(disk.write("b"))
        await turns()
        disk.gates[0].set()
        for writer in (first, second):
            with pytest.raises(StorageFailed, match="no space left") as raised:
                await writer
            assert raised.value.__cause__ is disk.error
        disk.error = None
        with pytest.raises(StorageFailed):
            disk.group.batch()
        with pytest.raises(StorageFailed):
            await disk.group.wait(2)
        await turns()
        assert (disk.begun, disk.flushed, disk.group.flushed) == ([["a"]], [], 0)
        assert await disk.group.failed() is disk.group.failure

    play(body())


def test_what_was_durable_before_a_failure_stays_so() -> None:
    async def body() -> None:
        disk = Disk()
        await disk.write("a")
        disk.error = OSError("gone")
        with pytest.raises(StorageFailed):
            await disk.write("b")
        await disk.group.wait(1)
        with pytest.raises(StorageFailed):
            await disk.group.wait(2)

    play(body())


def test_a_writer_that_is_cancelled_does_not_harm_the_others() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        writers = [asyncio.create_task(disk.write(word)) for word in "abc"]
        await turns()
        writers[1].cancel()
        await turns()
        disk.gates[0].set()
        results = await asyncio.gather(*writers, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
        assert disk.flushed == [["a", "b", "c"]]

    play(body())


def test_a_cancelled_writer_does_not_disturb_a_failure() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        disk.error = OSError("gone")
        writers = [asyncio.create_task(disk.write(word)) for word in "ab"]
        await turns()
        writers[0].cancel()
        disk.gates[0].set()
        results = await asyncio.gather(*writers, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, StorageFailed]

    play(body())


def test_drain_waits_for_all_that_was_written() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        await disk.group.drain()
        disk.group.batch().append("a")
        disk.group.mark_dirty()
        await turns()
        disk.group.batch().append("b")
        disk.group.mark_dirty()
        drain = asyncio.create_task(disk.group.drain())
        await turns()
        disk.gates[0].set()
        await turns()
        assert not drain.done()
        disk.gates[1].set()
        await drain
        assert disk.flushed == [["a"], ["b"]]
        await disk.group.drain()

    play(body())


def test_drain_waits_for_a_flush_that_is_under_way() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        disk.group.mark_dirty()
        await turns()
        drain = asyncio.create_task(disk.group.drain())
        await turns()
        assert not drain.done()
        disk.gates[0].set()
        await drain

    play(body())


def test_drain_of_a_failed_group_says_so() -> None:
    async def body() -> None:
        disk = Disk()
        disk.error = OSError("gone")
        disk.group.mark_dirty()
        with pytest.raises(StorageFailed):
            await disk.group.drain()

    play(body())


def test_flushed_batches_are_told_in_order_after_they_count_as_flushed() -> None:
    async def body() -> None:
        told: list[tuple[list[str], int]] = []

        async def flush(batch: list[str]) -> None:
            await asyncio.sleep(0)

        group: GroupCommit[list[str]] = GroupCommit(
            list, flush, on_flushed=lambda batch: told.append((batch, group.flushed))
        )
        for word in "abc":
            group.batch().append(word)
            await group.wait(group.mark_dirty())
        assert told == [(["a"], 1), (["b"], 2), (["c"], 3)]

    play(body())


def test_a_group_at_rest_leaves_no_task_and_no_waiter() -> None:
    async def body() -> None:
        disk = Disk()
        for n in range(10):
            await asyncio.gather(*(disk.write(str(n)) for _ in range(10)))
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert disk.group._waiters == {}

    play(body())


def test_a_store_that_is_away_fails_those_who_wait_and_nobody_else() -> None:
    async def body() -> None:
        disk = Disk(gated=True)
        first = asyncio.create_task(disk.write("a"))
        await turns()
        second = asyncio.create_task(disk.write("b"))
        await turns()
        disk.error = StorageUnavailable("away")
        disk.gates[0].set()
        with pytest.raises(StorageUnavailable, match="away"):
            await first
        disk.error = None
        await turns()
        disk.gates[1].set()
        await second
        assert (disk.flushed, disk.group.failure) == ([["b"]], None)

    play(body())


def test_what_was_given_up_holds_up_no_drain() -> None:
    async def body() -> None:
        disk = Disk()
        disk.error = StorageUnavailable("away")
        with pytest.raises(StorageUnavailable):
            await disk.write("a")
        await disk.group.drain()

    play(body())
