"""Promises about small records that belong to no job."""

import asyncio
from datetime import datetime

import pytest

from ....model import Record, RecordWrite
from ....storage.base import Hint, HintKind, StorageBackend, find_record
from .kit import (
    ALL,
    APPLIED,
    EXISTS,
    MISSING,
    REPEATED,
    STALE,
    START,
    ManualClock,
    Reopen,
    at,
    commit,
    create,
    hears,
    job_of,
    make_job,
    message,
    next_of,
    on_a_clock,
    only,
    over_a_restart,
    shown,
    write,
)

SHELF = "tokens"


def item(
    key: str,
    value: bytes | None = b"v",
    *,
    collection: str = SHELF,
    due: datetime | None = None,
    expected: int | None = None,
    ttl_s: float | None = None,
) -> RecordWrite:
    """The write of an item."""
    return RecordWrite(collection, key, value, due, expected, ttl_s)


async def keys(
    storage: StorageBackend, collection: str = SHELF, after: str = "", limit: int = ALL
) -> list[str]:
    """The keys of a shelf."""
    return [found.key for found in await storage.records(collection, after=after, limit=limit)]


async def ripe(storage: StorageBackend, seconds: float, limit: int = ALL) -> list[str]:
    """The keys whose time has come so many seconds after the start."""
    return [found.key for found in await storage.due_records(SHELF, at(seconds), limit)]


class ShelfPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_an_item_is_there_as_it_was_put(self, storage: StorageBackend, clock: ManualClock) -> None:
        assert await find_record(storage, SHELF, "a") is None
        assert await storage.put_records([item("a", b"\x00\xff", due=at(5))]) == [True]
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"\x00\xff", 1, at(5))
        assert await storage.put_records([item("a", b"")]) == [True]
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"", 2)
        assert await find_record(storage, "other", "a") is None
        assert await storage.put_records([]) == []

    @on_a_clock
    async def test_any_text_can_be_a_name(self, storage: StorageBackend, clock: ManualClock) -> None:
        names = ["", "a b", "a\nb", "nul\0nul", "ключ", "\U0001f511", "(", "-", "'; --"]
        writes = [
            item(key, collection=collection, value=f"{collection}|{key}".encode())
            for collection in names
            for key in names
        ]
        assert await storage.put_records(writes) == [True] * len(writes)
        for collection in names:
            found = await storage.records(collection, limit=ALL)
            assert [each.key for each in found] == sorted(names)
            assert [each.value for each in found] == [f"{collection}|{key}".encode() for key in sorted(names)]

    @on_a_clock
    async def test_a_write_behind_a_fence_counts_only_for_that_revision(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await storage.put_records([item("a", b"1", expected=1)]) == [False]
        assert await storage.put_records([item("a", b"1", expected=0)]) == [True]
        assert await storage.put_records([item("a", b"2", expected=0), item("a", b"2", expected=2)]) == [
            False,
            False,
        ]
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"1", 1)
        assert await storage.put_records([item("a", b"2", expected=1), item("a", b"3", expected=2)]) == [
            True,
            True,
        ]
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"3", 3)

    @on_a_clock
    async def test_of_two_who_remove_the_same_revision_one_wins(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item("once")])
        rivals = [storage.put_records([item("once", None, expected=1)]) for _ in range(8)]
        answers = [done for (done,) in await asyncio.gather(*rivals)]
        assert sorted(answers) == [False] * 7 + [True]
        assert await find_record(storage, SHELF, "once") is None

    @on_a_clock
    async def test_what_was_removed_begins_anew(self, storage: StorageBackend, clock: ManualClock) -> None:
        await storage.put_records([item("a", due=at(1)), item("a", due=at(1))])
        assert (
            await storage.put_records([item("a", None), item("a", None), item("b", None, expected=0)])
            == [True] * 3
        )
        assert (await keys(storage), await ripe(storage, 9)) == ([], [])
        await storage.put_records([item("a", b"new")])
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"new", 1)
        assert await ripe(storage, 9) == []

    @on_a_clock
    async def test_items_come_in_the_order_of_their_keys_page_by_page(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        names = [f"k{n:03}" for n in range(25)]
        await storage.put_records([item(key) for key in reversed(names)])
        await storage.put_records([item("k", collection="other")])
        seen: list[str] = []
        while page := await keys(storage, after=seen[-1] if seen else "", limit=7):
            seen += page
        assert seen == names
        assert await keys(storage, after="k0045", limit=2) == ["k005", "k006"]
        assert await keys(storage, limit=0) == await keys(storage, "unknown") == []
        assert len(await storage.records(SHELF)) == 25

    @on_a_clock
    async def test_ripe_items_come_earliest_first_and_stay(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        dues = {"c": 1.0, "b": 2.0, "a": 2.0, "d": 2.000001, "z": -3.0}
        await storage.put_records([item(key, due=at(seconds)) for key, seconds in dues.items()])
        await storage.put_records([item("never")])
        assert await ripe(storage, 2) == await ripe(storage, 2) == ["z", "c", "a", "b"]
        assert await ripe(storage, 2, limit=2) == ["z", "c"]
        assert (await ripe(storage, -4), await ripe(storage, 9, limit=0)) == ([], [])
        (first,) = await storage.due_records(SHELF, at(2), 1)
        assert first == Record(SHELF, "z", b"v", 1, at(-3))

    @on_a_clock
    async def test_a_write_moves_the_due_time_or_takes_it_away(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item("a", due=at(1)), item("b", due=at(1)), item("c", due=at(1))])
        await storage.put_records([item("a", due=at(5)), item("b"), item("c", due=at(9), expected=7)])
        assert await ripe(storage, 4) == ["c"]
        assert await ripe(storage, 5) == ["c", "a"]

    @on_a_clock
    async def test_an_item_is_gone_when_its_time_is_over(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item("a", ttl_s=10, due=START), item("b", ttl_s=10), item("c", due=START)])
        clock.move(9.99)
        assert await keys(storage) == ["a", "b", "c"]
        await storage.put_records([item("b", ttl_s=10)])
        clock.move(0.02)
        assert await find_record(storage, SHELF, "a") is None
        assert (await keys(storage), await ripe(storage, 60)) == (["b", "c"], ["c"])
        assert (await keys(storage, limit=1), await ripe(storage, 60, limit=1)) == (["b"], ["c"])
        assert await storage.put_records([item("a", expected=1), item("a", b"2", expected=0)]) == [
            False,
            True,
        ]
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"2", 1)
        clock.move(3600)
        assert await keys(storage) == ["a", "c"]

    @on_a_clock
    async def test_a_write_without_a_time_makes_it_stay(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item("a", ttl_s=5), item("b", ttl_s=0), item("c", ttl_s=1e300)])
        assert await keys(storage) == ["a", "c"]
        await storage.put_records([item("a")])
        clock.move(days=365)
        assert await keys(storage) == ["a", "c"]

    @on_a_clock
    async def test_many_that_ended_at_once_hide_nobody(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item(f"a{n:04}", ttl_s=1, due=at(-1)) for n in range(1200)])
        await storage.put_records([item("z", due=START)])
        clock.move(2)
        assert (await keys(storage, limit=1), await ripe(storage, 60, limit=1)) == (["z"], ["z"])
        for n in range(15):  # each write sweeps some of them out
            await storage.put_records([item(f"z{n:02}")])
        assert (await keys(storage, limit=2), await ripe(storage, 60)) == (["z", "z00"], ["z"])

    @on_a_clock
    async def test_what_cannot_be_stored_raises_and_changes_nothing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for bad in (item("\ud800"), item("b", collection="\ud800"), item("b", ttl_s=float("nan"))):
            with pytest.raises(ValueError, match="expected"):
                await storage.put_records([item("a"), bad])
        assert await keys(storage) == []
        (outcome,) = await storage.commit([write(make_job(), records=(item("a"), item("\ud800")))], "me")
        assert outcome.kind == "unstorable"
        assert (await shown(storage, "job-1"), await keys(storage)) == (None, [])

    # -- with a change ---------------------------------------------------------------------------

    @on_a_clock
    async def test_items_are_written_with_the_change(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job(), records=(item("a", b"1", due=at(3), expected=99), item("b")))
        assert await find_record(storage, SHELF, "a") == Record(SHELF, "a", b"1", 1, at(3))
        change = write(next_of(await job_of(storage)), records=(item("a", b"2", ttl_s=5), item("b", None)))
        assert await commit(storage, change) == [APPLIED]
        assert await storage.records(SHELF) == [Record(SHELF, "a", b"2", 2)]
        clock.move(6)
        assert await keys(storage) == []

    @on_a_clock
    async def test_a_refused_change_writes_no_item(self, storage: StorageBackend, clock: ManualClock) -> None:
        first = write(make_job(), records=(item("a"),))
        await commit(storage, first)
        assert await commit(
            storage,
            first,
            write(make_job(), records=(item("b"),)),
            write(make_job("job-2", revision=2), records=(item("b"),)),
            write(make_job("job-1", revision=7), records=(item("b"),)),
            only("job-1", consumes_message="unknown", records=(item("b"),)),
        ) == [REPEATED, EXISTS, MISSING, STALE, STALE]
        assert await storage.records(SHELF) == [Record(SHELF, "a", b"v", 1)]

    @on_a_clock
    async def test_items_are_written_by_whoever_only_consumes_a_message(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job(), messages=(message("m"),))
        assert await commit(storage, only("gone", consumes_message="m", records=(item("a"),))) == [APPLIED]
        assert await keys(storage) == ["a"]

    @on_a_clock
    async def test_records_are_found_by_their_keys(self, storage: StorageBackend, clock: ManualClock) -> None:
        await storage.put_records([item("a"), item("b"), item("c", ttl_s=5.0)])
        asked = ["c", "unknown", "a"]
        assert [one.key for one in await storage.records(SHELF, keys=asked)] == ["c", "a"]
        assert await storage.records(SHELF, keys=[]) == []
        assert await storage.records("unknown", keys=asked) == []
        clock.move(6)
        assert [one.key for one in await storage.records(SHELF, keys=asked)] == ["a"]

    @on_a_clock
    async def test_whoever_writes_an_item_that_is_due_hints_at_its_shelf(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await storage.put_records([item("a", due=at(0)), item("b", collection="other", due=at(1))])
        assert await hears(hints, Hint(HintKind.RECORD, SHELF), Hint(HintKind.RECORD, "other"))
        hints.clear()
        await create(storage, make_job(), records=(item("a", due=at(0)),))
        assert await hears(hints, Hint(HintKind.RECORD, SHELF))

    @on_a_clock
    async def test_what_is_due_later_or_never_or_is_removed_or_refused_is_no_news(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await storage.put_records([item("gone", due=at(0))])
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await storage.put_records(
            [item("later", due=at(60)), item("never"), item("gone", None), item("unknown", None)]
        )
        await storage.put_records([item("never", expected=9, due=at(0))])
        await storage.put_records([item("news", collection="other", due=at(0))])
        assert await hears(hints, Hint(HintKind.RECORD, "other"))
        assert Hint(HintKind.RECORD, SHELF) not in hints


class ShelfPersistence:
    """Part of the suite that `PersistenceConformance` is."""

    @over_a_restart
    async def test_items_are_there_again(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await storage.put_records(
            [item("b", b"\x00", due=at(9)), item("a", due=at(-9)), item("x\0ü"), item("gone")]
        )
        await storage.put_records(
            [item("b", b"\xff", due=at(8)), item("gone", None), item("c", collection="other")]
        )
        await create(storage, make_job(), records=(item("job"),))
        before = (
            await storage.records(SHELF),
            await storage.records("other"),
            await storage.due_records(SHELF, at(9), 9),
        )
        storage = await reopen()
        after = (
            await storage.records(SHELF),
            await storage.records("other"),
            await storage.due_records(SHELF, at(9), 9),
        )
        assert after == before
        assert await keys(storage) == ["a", "b", "job", "x\0ü"]
        assert await storage.put_records([item("b", expected=1), item("b", expected=2)]) == [False, True]

    @over_a_restart
    async def test_the_time_of_an_item_goes_on_while_nobody_is_there(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await storage.put_records([item("short", ttl_s=10), item("long", ttl_s=100), item("stays")])
        clock.move(4)
        storage = await reopen()
        assert await keys(storage) == ["long", "short", "stays"]
        clock.move(7)
        assert await keys(storage) == ["long", "stays"]
        await storage.put_records([item("new")])
        storage = await reopen()
        assert await keys(storage) == ["long", "new", "stays"]
        clock.move(100)
        storage = await reopen()
        assert await keys(storage) == ["new", "stays"]
        assert await storage.put_records([item("long", expected=0)]) == [True]
