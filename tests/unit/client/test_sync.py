import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from regista import Client, Event, JobNotFound, OrchestratorEngine, SyncClient, Unreachable
from regista.client import JobObject
from regista.client.files import Files
from regista.client.schedules import Schedules
from regista.client.sync import SyncFiles, SyncSchedules
from tests.unit.client.test_client import TOKEN, director_on


@pytest.fixture
def url() -> Iterator[str]:
    """An orchestrator in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        director, where = asyncio.run_coroutine_threadsafe(_started(), loop).result(5)
        yield where
        asyncio.run_coroutine_threadsafe(director.stop(0.0), loop).result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _started() -> tuple[OrchestratorEngine, str]:
    director = director_on()
    site = await director.serve(port=0)
    return director, site.url


@pytest.mark.parametrize(
    ("target", "sync"), [(Client, SyncClient), (Files, SyncFiles), (Schedules, SyncSchedules)]
)
def test_it_has_every_method_of_the_client_with_the_same_parameters(target: type, sync: type) -> None:
    for name, method in inspect.getmembers(target, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(sync, name)) == inspect.signature(method)
            assert not inspect.iscoroutinefunction(getattr(sync, name))


def test_jobs_are_run_waited_for_listed_and_watched(url: str) -> None:
    with SyncClient(url, TOKEN) as client:
        job = client.run("work", {"n": 1}, timeout_s=5)
        assert (job.status, client.get(job.id).data) == ("finished", {"n": 1})
        answers = client.submit_many([{"blueprint": "work"}] * 3)
        ids = [answer.id for answer in answers if isinstance(answer, JobObject)]
        assert len(list(client.wait_many(ids))) == 3
        assert len(list(client.jobs(page=2))) == 4
        seqs = [event.seq for event in client.events(job.id) if isinstance(event, Event)]
        assert seqs == list(range(1, len(seqs) + 1))
        with pytest.raises(JobNotFound):
            client.get("nothing")


def test_a_stream_may_be_left_in_the_middle(url: str) -> None:
    with SyncClient(url, TOKEN) as client:
        job = client.submit("ask")
        for event in client.events(job.id):
            if event.type == "approval_requested":
                break
        client.approve(job.id)
        assert client.wait(job.id, 5).status == "finished"


def test_it_works_inside_a_running_loop_and_from_several_threads(url: str) -> None:
    async def notebook() -> str:
        with SyncClient(url, TOKEN) as client:
            return client.run("work", timeout_s=5).status

    assert asyncio.run(notebook()) == "finished"

    with SyncClient(url, TOKEN) as client:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(client.run("work", timeout_s=5).status))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["finished"] * 5


def test_a_closed_client_says_so_and_may_be_closed_again() -> None:
    client = SyncClient("http://127.0.0.1:9", TOKEN)
    client.close()
    client.close()

    with pytest.raises(RuntimeError, match="closed"):
        client.status()


def test_nobody_there_is_said_after_a_moment() -> None:
    nobody = SyncClient("http://127.0.0.1:9", TOKEN, first_contact_s=0.1)
    with nobody as client, pytest.raises(Unreachable, match="connection refused"):
        client.run("work")


def test_one_that_is_forgotten_gives_its_thread_back(url: str) -> None:
    before = threading.active_count()
    client = SyncClient(url, TOKEN)
    client.status()
    assert threading.active_count() > before

    del client

    assert threading.active_count() == before


def test_a_program_that_forgets_to_close_ends_without_noise(url: str) -> None:
    program = (
        "import sys\nfrom regista import SyncClient\n"
        "client = SyncClient(sys.argv[1], sys.argv[2])\n"
        "print(client.run('work', timeout_s=5).status)\n"
        "stream = client.events(after='0')\nnext(stream)\n"
    )
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program, url, TOKEN]

    done = subprocess.run(command, capture_output=True, text=True, timeout=8, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")
