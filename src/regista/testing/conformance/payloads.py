"""What every payload store must do: one test per promise in `regista.payloads.base`.

A store is held to it by a subclass with one fixture::

    class TestMyPayloads(PayloadsConformance):
        @pytest.fixture
        def payloads_factory(self, tmp_path):
            return lambda: MyPayloads(tmp_path)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from ...errors import BadFileName, FileMissing
from ...payloads.base import PayloadStore
from ...payloads.files_service import TaskFilesService
from ...payloads.scratch import ScratchDirectory

PayloadsFactory = Callable[[], PayloadStore]
P = ParamSpec("P")

#: Names that people give to files; every store must keep them as they are.
ODD_NAMES = [
    "a.txt",
    "frames/001.png",
    "Übung 1 (alt).txt",
    "100%.txt",
    "a+b&c=d?.txt",
    "日本語/ファイル",
    ".hidden",
    "a..b",
    "~home",
    "it's [the] {last}*",
    "%2e%2e",
    "...",
    "a line\u2028further",
    "unassigned \U00052f5b",
    "x" * 240,
]
#: Names that would lead somewhere else, or that some store could not keep.
BAD_NAMES = [
    "",
    "/etc/passwd",
    "../other/a.txt",
    "a/../../b",
    "a/..",
    "..",
    ".",
    "./a",
    "a//b",
    "a/",
    "a\\b",
    "..\\b",
    "a\x00b",
    "a\nb",
    "\ud800",
    "a#b",
    "x" * 241,
    "y/" * 500 + "y",
]


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def pieces(count: int, size: int = 1024 * 1024) -> AsyncIterator[bytes]:
    """So many pieces, each another."""
    for number in range(count):
        yield bytes([number % 251]) * size


async def gathered(stream: AsyncIterator[bytes]) -> bytes:
    """All of a stream."""
    return b"".join([piece async for piece in stream])


class PayloadsConformance:
    """The promises of a payload store, and of the `TaskFiles` over it."""

    @pytest.fixture
    def payloads_factory(self) -> PayloadsFactory:
        """Makes the store under test; overridden by every subclass."""
        raise NotImplementedError

    # -- files ---------------------------------------------------------------------------------------

    @on_a_loop
    async def test_what_was_put_can_be_got(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        await store.start()

        await store.put("jobs/j1/a.txt", b"hello")

        assert await store.get("jobs/j1/a.txt") == b"hello"
        assert await gathered(store.stream("jobs/j1/a.txt")) == b"hello"

    @on_a_loop
    async def test_a_second_put_replaces_the_first(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        await store.put("jobs/j1/a.txt", b"a long first text")

        await store.put("jobs/j1/a.txt", b"short")

        assert await store.get("jobs/j1/a.txt") == b"short"

    @on_a_loop
    async def test_an_empty_file_is_a_file(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()

        await store.put("jobs/j1/nothing", b"")

        assert await store.get("jobs/j1/nothing") == b""
        assert await gathered(store.stream("jobs/j1/nothing")) == b""
        found = await store.find("jobs/j1/nothing")
        assert found is not None
        assert found.size == 0

    @on_a_loop
    async def test_what_is_not_there_is_told_so(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()

        assert await store.find("jobs/j1/none") is None
        with pytest.raises(FileMissing):
            await store.get("jobs/j1/none")
        with pytest.raises(FileMissing):
            await gathered(store.stream("jobs/j1/none"))

    @on_a_loop
    async def test_a_stream_goes_up_and_comes_down_in_order(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()

        await store.put("jobs/j1/big", pieces(20))

        sizes, content = [], b""
        async for piece in store.stream("jobs/j1/big"):
            sizes.append(len(piece))
            content += piece
        assert content == await gathered(pieces(20))
        assert max(sizes) <= 16 * 1024 * 1024

    @on_a_loop
    async def test_an_empty_stream_is_an_empty_file(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()

        await store.put("jobs/j1/none", pieces(0))

        assert await store.get("jobs/j1/none") == b""

    @on_a_loop
    async def test_empty_pieces_do_not_end_a_stream(self, payloads_factory: PayloadsFactory) -> None:
        async def with_gaps() -> AsyncIterator[bytes]:
            for piece in (b"", b"a", b"", b"b", b""):
                yield piece

        store = payloads_factory()

        await store.put("jobs/j1/gaps", with_gaps())

        assert await store.get("jobs/j1/gaps") == b"ab"

    @on_a_loop
    async def test_a_stream_that_fails_leaves_what_was_there(self, payloads_factory: PayloadsFactory) -> None:
        async def failing() -> AsyncIterator[bytes]:
            async for piece in pieces(10):
                yield piece
            raise ZeroDivisionError("half-way")

        store = payloads_factory()
        await store.put("jobs/j1/a", b"before")

        with pytest.raises(ZeroDivisionError, match="half-way"):
            await store.put("jobs/j1/a", failing())

        assert await store.get("jobs/j1/a") == b"before"

    @on_a_loop
    async def test_a_file_of_this_machine_goes_up(
        self, payloads_factory: PayloadsFactory, tmp_path: Path
    ) -> None:
        store = payloads_factory()
        (tmp_path / "source").write_bytes(b"x" * 9_000_000)

        await store.put("jobs/j1/copy", tmp_path / "source")

        found = await store.find("jobs/j1/copy")
        assert found is not None
        assert found.size == 9_000_000

    @on_a_loop
    async def test_a_reader_may_leave_early(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        await store.put("jobs/j1/big", pieces(12))

        async for piece in store.stream("jobs/j1/big"):
            assert piece
            break

        assert await store.find("jobs/j1/big") is not None

    # -- lists -----------------------------------------------------------------------------------------

    @on_a_loop
    async def test_a_list_has_everything_below_and_nothing_beside(
        self, payloads_factory: PayloadsFactory
    ) -> None:
        store = payloads_factory()
        for path in ("jobs/j1/a", "jobs/j1/deep/down/b", "jobs/j10/c", "records/j1/d"):
            await store.put(path, b"12345")

        found = {each.name: each.size async for each in store.files("jobs/j1")}

        assert found == {"jobs/j1/a": 5, "jobs/j1/deep/down/b": 5}
        assert [each async for each in store.files("jobs/none")] == []

    @on_a_loop
    async def test_a_list_tells_when_a_file_was_written(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        await store.put("jobs/j1/a", b"")

        (found,) = [each async for each in store.files("jobs")]

        assert abs(datetime.now(UTC) - found.modified) < timedelta(minutes=1)

    @on_a_loop
    async def test_folders_are_the_jobs(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        assert await store.folders("jobs") == []
        for path in ("jobs/j2/a", "jobs/j1/x/y", "jobs/j1/b", "records/j3/c"):
            await store.put(path, b"")

        assert await store.folders("jobs") == ["j1", "j2"]

    @on_a_loop
    async def test_delete_removes_and_forgives(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()
        for number in range(5):
            await store.put(f"jobs/j1/{number}", b"")

        await store.delete([])
        await store.delete(["jobs/j1/none"])
        await store.delete(["jobs/j1/none", *(f"jobs/j1/{number}" for number in range(4))])

        assert [each.name async for each in store.files("jobs")] == ["jobs/j1/4"]
        await store.delete(["jobs/j1/4"])
        assert await store.folders("jobs") == []

    @on_a_loop
    async def test_clear_removes_all_below_and_nothing_beside(
        self, payloads_factory: PayloadsFactory
    ) -> None:
        store = payloads_factory()
        for path in ("jobs/j1/a", "jobs/j1/x/y/b", "jobs/j10/c"):
            await store.put(path, b"")

        assert await store.clear("jobs/j1") == 2
        assert await store.clear("jobs/j1") == 0

        assert await store.folders("jobs") == ["j10"]

    @on_a_loop
    async def test_a_uri_leads_back_to_its_path(self, payloads_factory: PayloadsFactory) -> None:
        store = payloads_factory()

        assert store.path_of(store.uri("jobs/j1/a.txt")) == "jobs/j1/a.txt"
        assert store.path_of("s3://somewhere-else/jobs/j1/a.txt") is None

    # -- TaskFiles -------------------------------------------------------------------------------------

    @on_a_loop
    async def test_odd_names_are_kept_as_they_are(
        self, payloads_factory: PayloadsFactory, tmp_path: Path
    ) -> None:
        service = TaskFilesService(payloads_factory(), ScratchDirectory(str(tmp_path)))
        files = service.open("j1")

        for name in ODD_NAMES:
            await files.write_text(name, f"I am {name}")

        assert [each.name for each in await files.list()] == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert await files.read_text(name) == f"I am {name}"
        await service.stop()

    @on_a_loop
    async def test_no_name_leads_out_of_the_job(
        self, payloads_factory: PayloadsFactory, tmp_path: Path
    ) -> None:
        service = TaskFilesService(payloads_factory(), ScratchDirectory(str(tmp_path)))
        files, others = service.open("j1"), service.open("j2")
        await others.write_text("secret.txt", "of j2")

        for name in [*BAD_NAMES, "../j2/secret.txt"]:
            for work in (files.read(name), files.write(name, b""), files.exists(name), files.delete(name)):
                with pytest.raises(BadFileName):
                    await work
            with pytest.raises(BadFileName):
                await files.download("secret.txt", name or "..")
        with pytest.raises(BadFileName, match="not a file of this job"):
            await files.download(others.uri("secret.txt"))
        for job_id in ("../j2", "", "j1/..", "a/b"):
            with pytest.raises(BadFileName):
                service.open(job_id)
        await service.stop()

    @on_a_loop
    async def test_files_go_down_to_this_machine_and_up_again(
        self, payloads_factory: PayloadsFactory, tmp_path: Path
    ) -> None:
        service = TaskFilesService(payloads_factory(), ScratchDirectory(str(tmp_path)))
        await service.start()
        files = service.open("j1", "a1")
        uri = await files.write_json("in.json", {"n": [1, 2]})

        here = await files.download("in.json")
        again = await files.download(uri, "copies/again.json")
        assert here.read_bytes() == again.read_bytes() == b'{"n":[1,2]}'
        assert await files.read_json("in.json") == {"n": [1, 2]}

        files.path_to("out/b.txt").write_text("b")
        assert await files.upload("out/b.txt") == files.uri("out/b.txt")
        await files.upload("copies/again.json", "c.json")
        assert [each.name for each in await files.list()] == ["c.json", "in.json", "out/b.txt"]
        assert [each.name for each in await files.list("out")] == ["out/b.txt"]
        await files.delete("c.json")
        assert not await files.exists("c.json")
        with pytest.raises(FileMissing, match=r"'c\.json'"):
            await files.info("c.json")
        await service.stop()
        assert not here.exists()

    @on_a_loop
    async def test_plain_functions_have_twins_of_their_own(
        self, payloads_factory: PayloadsFactory, tmp_path: Path
    ) -> None:
        service = TaskFilesService(payloads_factory(), ScratchDirectory(str(tmp_path)))
        await service.start()
        files = service.open("j1")

        def work() -> list[str]:
            files.write_json_sync("a.json", [1])
            files.write_text_sync("b.txt", files.read_text_sync("a.json"))
            files.upload_sync(files.download_sync("b.txt"), "c.txt")
            assert files.read_json_sync("c.txt") == [1]
            assert files.exists_sync("c.txt")
            return [each.name for each in files.list_sync()]

        assert await asyncio.to_thread(work) == ["a.json", "b.txt", "c.txt"]
        with pytest.raises(RuntimeError, match="awaits"):
            files.read_sync("a.json")
        await service.stop()
