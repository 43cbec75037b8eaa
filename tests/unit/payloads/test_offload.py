"""Large values leave a record, and come back as they were or not at all."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.payloads.base import MARK, broken, refs_of
from regista.payloads.directory import DirectoryPayloads
from regista.payloads.memory import MemoryPayloads
from regista.payloads.offload import Offloader, shown, unfetched
from regista.testing.clock import Clock

LIMIT = 100
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=20,
)
values = st.dictionaries(st.sampled_from([MARK, "a", "b", "c", "whole"]), plain, max_size=5) | plain


def offloader(store: MemoryPayloads | None = None, clock: Clock | None = None) -> Offloader:
    return Offloader(store or MemoryPayloads(), LIMIT, clock or Clock())


@given(values)
async def test_whatever_is_put_away_comes_back_as_it_was(value: Any) -> None:
    store = MemoryPayloads()
    packed = await offloader(store).pack("j1", value)

    # One that remembers nothing.
    assert await offloader(store).unpack("j1", packed) == value
    # One who does not need it, and stores it again.
    assert await offloader(store).pack("j1", unfetched("j1", packed)) == packed


def test_a_small_value_stays_the_very_same_object() -> None:
    small = {"a": 1, "b": ["x"]}

    assert asyncio.run(offloader().pack("j1", small)) is small


@pytest.mark.parametrize("value", [{"a": object()}, {"a": 2**70}, {"a": {1j}}, {"a": "\ud800"}])
def test_what_cannot_be_stored_is_left_to_the_store_to_refuse(value: Any) -> None:
    assert not offloader().needs_offload(value)


async def test_only_the_members_that_are_large_are_put_away() -> None:
    store = MemoryPayloads()
    packed = await offloader(store).pack("j1", {"small": 1, "large": "x" * 200})

    assert packed["small"] == 1
    assert "large" not in packed
    (ref,) = refs_of(packed)
    assert ref.path == f"records/j1/{ref.sha256}"
    assert await store.find(ref.path) is not None
    assert shown("j1", packed) == {
        "small": 1,
        "large": {"$offloaded": {"size": ref.size, "sha256": ref.sha256}},
    }


def test_many_small_members_are_put_away_together() -> None:
    value = {str(number): "x" * 10 for number in range(100)}

    packed = asyncio.run(offloader().pack("j1", value))

    assert list(packed) == [MARK]
    assert list(packed[MARK]) == ["whole"]


async def test_the_same_value_is_written_once() -> None:
    class Counting(MemoryPayloads):
        puts = 0

        async def put(self, path: str, content: Any) -> None:
            self.puts += 1
            await super().put(path, content)

    store = Counting()
    away = offloader(store)
    for number in range(5):
        await away.pack("j1", {"large": "x" * 200, "n": number})

    assert store.puts == 1


async def test_a_reference_to_another_jobs_value_is_just_a_value() -> None:
    store = MemoryPayloads()
    secret = await offloader(store).pack("j1", {"secret": "s" * 200})

    stored = await offloader(store).pack("j2", secret)

    assert await offloader(store).unpack("j2", stored) == secret  # as it was sent, and nothing of j1
    assert await offloader(store).unpack("j2", secret) == secret
    assert shown("j2", secret) == secret


@pytest.mark.parametrize("damage", [b"", b"something else", None])
async def test_a_value_that_is_not_what_was_written_is_broken_for_good(damage: bytes | None) -> None:
    store = MemoryPayloads()
    packed = await offloader(store).pack("j1", {"large": "x" * 200, "small": 1})
    (ref,) = refs_of(packed)
    await store.delete([ref.path])
    if damage is not None:
        await store.put(ref.path, damage)

    found = await offloader(store).unpack("j1", packed)

    why = broken(found)
    assert why is not None
    assert (why.code, why.permanent) == ("integrity_error", True)
    assert f"expected the value with the checksum sha256:{ref.sha256}, found" in why.message
    # What is stored next is the reference again, without that note.
    assert await offloader(store).pack("j1", found) == packed


async def test_a_store_that_is_away_keeps_nothing_from_being_written() -> None:
    from regista.errors import PayloadUnavailable

    class Away(MemoryPayloads):
        calls = 0

        async def put(self, path: str, content: Any) -> None:
            self.calls += 1
            raise PayloadUnavailable("away")

        async def get(self, path: str) -> bytes:
            raise PayloadUnavailable("away")

    store, clock = Away(), Clock()
    away = offloader(store, clock)
    value = {"large": "x" * 200}

    assert await away.pack("j1", value) is value
    assert await away.pack("j1", {"other": "y" * 200}) == {"other": "y" * 200}
    assert store.calls == 1  # it is left alone for a while
    clock.move(11)
    await away.pack("j1", value)
    assert store.calls == 2

    packed = await offloader().pack("j1", value)
    why = broken(await away.unpack("j1", packed))
    assert why is not None
    assert (why.code, why.permanent) == ("payloads_unavailable", False)


async def test_what_was_written_later_wins_over_a_reference_to_the_same() -> None:
    """A person mends a job whose value is broken: edit, and release."""

    store = MemoryPayloads()
    packed = await offloader(store).pack("j1", {"large": "x" * 200, "other": "y" * 200, "small": 1})
    for ref in refs_of(packed):
        await store.put(ref.path, b"something else")
    hurt = await offloader(store).unpack("j1", packed)

    mended = await offloader(store).pack("j1", {**hurt, "large": "new", "other": "z" * 200})

    assert await offloader(store).unpack("j1", mended) == {"large": "new", "other": "z" * 200, "small": 1}


async def test_what_is_added_to_a_value_that_could_not_be_had_is_added_to_it_later() -> None:
    store = MemoryPayloads()
    many = {str(number): "x" * 10 for number in range(50)}
    packed = await offloader(store).pack("j1", many)

    unread = unfetched("j1", packed)
    added = await offloader(store).pack("j1", {**unread, "more": 1, "0": "new"})

    assert await offloader(store).unpack("j1", added) == {**many, "more": 1, "0": "new"}


@pytest.mark.parametrize(
    "form",
    [
        {"broken": 5},
        {"broken": ["a", "b", True]},
        {"plain": 5},
        {"plain": {MARK: {"broken": 7}}},
        {"keys": {}},
        {"keys": []},
        {"whole": 5},
        {"whole": {"path": "records/j1/../x", "sha256": "../x", "size": 5}},
        {"whole": {"path": "records/j1/" + "a" * 64, "sha256": "a" * 64, "size": 5}},
        None,
    ],
)
async def test_a_forged_reference_is_just_a_value_even_to_the_jobs_own_place(form: Any) -> None:
    store = MemoryPayloads()
    for sent in ({MARK: form}, {MARK: form, "more": 1}):
        stored = await offloader(store).pack("j1", sent)

        found = await offloader(store).unpack("j1", stored)

        assert found == sent
        assert broken(found) is None
        assert shown("j1", stored) == sent


@pytest.mark.parametrize("error", [ValueError("a bad path"), RecursionError("too deep"), OSError("no")])
def test_whatever_a_store_raises_is_the_trouble_of_one_value(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(MemoryPayloads):
        async def get(self, path: str) -> bytes:
            raise error

        async def put(self, path: str, content: Any) -> None:
            raise error

    async def play() -> None:
        value = {"large": "x" * 200}
        packed = await offloader().pack("j1", value)

        why = broken(await offloader(Odd()).unpack("j1", packed))

        assert why is not None
        assert (why.code, why.permanent) == ("payload_error", True)
        assert await offloader(Odd()).pack("j1", value) is value  # and is kept from no record

    asyncio.run(play())
    # Nobody foresaw it: where it comes from must be found.
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


async def test_a_value_that_was_written_long_ago_is_written_again() -> None:
    """An hour later nobody knew the job, and its values were removed: the reference must not lead nowhere."""

    store, clock = MemoryPayloads(), Clock()
    away = offloader(store, clock)
    value = {"large": "x" * 200}
    (ref,) = refs_of(await away.pack("j1", value))
    clock.move(3600)
    await store.delete([ref.path])

    assert refs_of(await away.pack("j1", value)) == [ref]

    assert await store.find(ref.path) is not None


async def test_a_value_is_had_while_files_hold_all_turns(tmp_path: Path) -> None:
    """Or a crowd of readers would be taken for a store that is away, and the job for broken."""

    store = DirectoryPayloads(tmp_path, concurrency=1)
    packed = await Offloader(store, LIMIT, Clock()).pack("j1", {"large": "x" * 200})
    await store.put("jobs/j1/a", b"x" * 3_000_000)
    held = cast(AsyncGenerator[bytes, None], store.stream("jobs/j1/a"))
    await anext(held)

    async with asyncio.timeout(2):
        assert await Offloader(store, LIMIT, Clock()).unpack("j1", packed) == {"large": "x" * 200}

    await held.aclose()
