"""A directory: what a killed process left half-written goes with the rest, and many files go in several calls."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regista.errors import BadFileName, FileMissing
from regista.payloads.directory import DirectoryPayloads


async def test_half_a_file_is_never_listed_and_goes_with_the_job(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path)
    await store.put("jobs/j1/whole", b"x")
    (tmp_path / "jobs" / "j1" / "half#1").write_bytes(b"x")  # as the library calls it until it is whole

    assert [each.name async for each in store.files("jobs")] == ["jobs/j1/whole"]
    assert await store.clear("jobs/j1") == 1

    assert not (tmp_path / "jobs" / "j1").exists()


async def test_many_files_are_removed_in_several_calls(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path)
    (tmp_path / "jobs" / "j1").mkdir(parents=True)
    for number in range(1005):
        (tmp_path / "jobs" / "j1" / str(number)).touch()

    assert await store.clear("jobs/j1") == 1005
    assert await store.folders("jobs") == []


async def test_a_name_that_a_disk_cannot_have_beside_another_is_refused_and_is_no_outage(
    tmp_path: Path,
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    store = DirectoryPayloads(tmp_path)
    await store.put("jobs/j1/a", b"a")
    await store.put("jobs/j1/d/e", b"e")

    for name, why in (("a/b", "'a' is a file"), ("a/b/c", "'a' is a file"), ("d", "files below it")):
        for content in (b"x", pieces()):
            with pytest.raises(BadFileName, match=f"got '{name}': .*{why}"):
                await store.put(f"jobs/j1/{name}", content)
        assert await store.find(f"jobs/j1/{name}") is None
        with pytest.raises(FileMissing):
            await store.get(f"jobs/j1/{name}")
        await store.delete([f"jobs/j1/{name}"])
    assert [each async for each in store.files("jobs/j1/a/b")] == []

    assert await store.get("jobs/j1/a") == b"a"
    assert await store.get("jobs/j1/d/e") == b"e"
