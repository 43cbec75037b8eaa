"""A directory: what a killed process left half-written goes with the rest, and many files go in several calls."""

import asyncio
from pathlib import Path

from regista.payloads.local import LocalPayloads


def test_half_a_file_is_never_listed_and_goes_with_the_job(tmp_path: Path) -> None:
    async def play() -> None:
        store = LocalPayloads(tmp_path)
        await store.put("jobs/j1/whole", b"x")
        (tmp_path / "jobs" / "j1" / "half#1").write_bytes(b"x")  # as the library calls it until it is whole

        assert [each.name async for each in store.files("jobs")] == ["jobs/j1/whole"]
        assert await store.clear("jobs/j1") == 1

        assert not (tmp_path / "jobs" / "j1").exists()

    asyncio.run(play())


def test_many_files_are_removed_in_several_calls(tmp_path: Path) -> None:
    async def play() -> None:
        store = LocalPayloads(tmp_path)
        (tmp_path / "jobs" / "j1").mkdir(parents=True)
        for number in range(1005):
            (tmp_path / "jobs" / "j1" / str(number)).touch()

        assert await store.clear("jobs/j1") == 1005
        assert await store.folders("jobs") == []

    asyncio.run(play())
