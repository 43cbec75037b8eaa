"""Files with real processes and a real S3 server: orchestrator, worker and command line, and kill -9 between them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista import Connection, SyncClient
from tests.acceptance.processes import House
from tests.s3_server import S3Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

APP = """
import asyncio

from regista import StateMachineBlueprint, TaskFiles, Worker

worker = Worker("crew", concurrency=4)
media = StateMachineBlueprint("media")


@media.handler_for("start", is_start=True)
def start(context, actions):
    actions.await_human_approval("Is the file there?", transitions={"approve": "work"})


@media.handler_for("work")
def work(context, actions):
    actions.dispatch_task("shout", context.initial_data, transitions={"success": "done"})


@media.handler_for("done", is_end=True)
async def done(context, actions, task_files):
    found = await task_files.read_text("out.txt")
    (task_files.path / "left.txt").write_text("x")
    actions.set_result({"out": found, "load": len(context.state_history["load"])})


@worker.task("shout")
async def shout(seconds: float, files: TaskFiles, load: str = ""):
    source = await files.download("in.txt")
    await files.write_text("out.txt", source.read_text().upper())
    await asyncio.sleep(seconds)
    return {"load": load * 2}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from serving()


@pytest.fixture
def house(tmp_path: Path, server: S3Server) -> Iterator[House]:
    house = House(tmp_path, APP)
    scratch = tmp_path / "scratch"
    house.set(
        **server.settings, REGISTA_PAYLOADS=f"s3://payloads/{tmp_path.name}", TASK_FILES_DIR=str(scratch)
    )
    yield house
    house.close()


def stored(house: House, server: S3Server, prefix: str) -> list[str]:
    """What lies in the bucket."""
    place = server.bucket / house.folder.name / prefix
    return sorted(each.relative_to(place).as_posix() for each in place.rglob("*") if each.is_file())


def scratch(house: House) -> list[str]:
    """What lies on this machine, but for the locks."""
    place = house.folder / "scratch"
    return [each.name for each in place.rglob("*") if each.is_file() and each.name != ".lock"]


def client_of(house: House) -> SyncClient:
    return SyncClient(connection=Connection(url=house.url, state_dir=str(house.folder / ".regista")))


def test_a_file_goes_from_the_command_line_through_a_worker_and_is_gone_at_the_end(
    house: House, server: S3Server
) -> None:
    house.serve()
    house.start("worker", "app.py")
    (house.folder / "in.txt").write_text("hello")
    with client_of(house) as client:
        job = client.submit("media", {"seconds": 0.1, "load": "z" * 400_000})

        assert house.said("jobs", "files", job.id, "--put", "in.txt").strip() == "in.txt"
        assert "in.txt" in house.said("jobs", "files", job.id)
        link = house.said("jobs", "files", job.id, "--link", "in.txt").strip()
        fetched = house.said("jobs", "files", job.id, "--get", "in.txt", "-o", "copy.txt").strip()
        assert link.startswith(f"{server.url}/payloads/")
        assert (house.folder / fetched).read_text() == "hello"
        client.approve(job.id)

        ended = client.wait(job.id, 20)

    assert ended.result == {"out": "HELLO", "load": 800_000}, ended.error
    house.until(lambda: stored(house, server, "jobs") == [], "clean-up")
    house.until(lambda: scratch(house) == [], "clean-up on this machine")
    # The values of its record stay with it.
    assert stored(house, server, "records") != []


def test_kill_9_loses_no_file_of_a_living_job_and_leaves_none_of_an_ended_one(
    house: House, server: S3Server
) -> None:
    first = house.serve()
    with client_of(house) as client:
        living, ended = (client.submit("media").id for _ in range(2))
        for job_id in (living, ended):
            client.files.upload(job_id, b"hello", "in.txt")

        house.end(first, signal.SIGKILL)
        house.set(S3_AUTO_CLEANUP="false")
        second = house.serve()
        client.cancel(ended)  # it ends, and nobody cleans up
        house.end(second, signal.SIGKILL)
        assert len(stored(house, server, "jobs")) == 2
        house.set(S3_AUTO_CLEANUP="true")
        house.serve()

        house.until(lambda: stored(house, server, "jobs") == [f"{living}/in.txt"], "the sweep")
        assert client.files.read(living, "in.txt") == b"hello"


def test_what_a_killed_worker_had_on_its_disk_is_removed_by_the_next(house: House) -> None:
    house.serve()
    worker = house.start("worker", "app.py")
    with client_of(house) as client:
        job = client.submit("media", {"seconds": 30})
        client.files.upload(job.id, b"hello", "in.txt")
        client.approve(job.id)
    house.until(lambda: scratch(house) == ["in.txt"], "the download")

    house.end(worker, signal.SIGKILL)
    assert scratch(house) == ["in.txt"]
    house.start("worker", "app.py")

    house.until(lambda: scratch(house) == [], "the sweep of this machine")


#: A process that writes and reads a file, and says how much its memory has grown.
PROBE = [sys.executable, "-m", "bench.payloads", "--store", "s3", "--gb", "0.25"]


def test_a_large_file_takes_no_memory_to_speak_of() -> None:
    """The small form: `python -m bench.payloads` does it with 2 GB, and says the same."""
    root = Path(__file__).parents[2]
    done = subprocess.run(PROBE, cwd=root, capture_output=True, text=True, timeout=55, check=False)

    assert done.returncode == 0, done.stdout + done.stderr  # less than 64 MB
    assert done.stdout.count('"mb":256') == 4
