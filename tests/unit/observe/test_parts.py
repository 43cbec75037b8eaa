from pathlib import Path

import pytest

from regista.clock import SystemClock
from regista.errors import FileMissing
from regista.observe.metrics import Metrics
from regista.observe.parts import counted_start, watched_payloads
from regista.payloads.directory import DirectoryPayloads


async def test_jobs_of_schedules_are_counted_by_blueprint() -> None:
    of = Metrics()

    async def start(blueprint: str, data: dict[str, int], source: str = "") -> str:
        return f"{blueprint}-{data['n']}-{source}"

    assert await counted_start(of, start)("nightly", {"n": 1}, source="s") == "nightly-1-s"
    assert of.scheduled.values == {("nightly",): 1}


async def test_operations_on_a_payload_store_are_counted_and_timed(tmp_path: Path) -> None:
    of = Metrics()
    files = watched_payloads(DirectoryPayloads(tmp_path), of, SystemClock())

    await files.put("jobs/j/a.txt", b"abc")
    assert await files.get("jobs/j/a.txt") == b"abc"
    assert await files.find("jobs/j/b.txt") is None
    await files.delete(["jobs/j/a.txt"])
    with pytest.raises(FileMissing):
        await files.get("jobs/j/a.txt")

    done = {(operation, "done"): 1 for operation in ("put", "get", "find", "delete")}
    assert of.payload_operations.values == done | {("get", "failed"): 1}
    assert sum(of.payload_duration.values[("get",)].counts) == 2
    assert files.path_of(files.uri("jobs/j/a.txt")) == "jobs/j/a.txt"
