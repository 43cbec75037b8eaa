"""Three orchestrators behind a real nginx, and one of them goes."""

import asyncio
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from regista import Client, JobNotFound
from regista.schemas.jobs import JobObject
from tests.acceptance.edge import Edge, Orchestrator
from tests.acceptance.nginx_kit import TOKENS, Caller, until
from tests.conftest import require_binary
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.timeout(20), pytest.mark.slow]

PROGRAM = Path(__file__).with_name("nginx_load.py")


@pytest.fixture(scope="module", params=["own", "shared"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """nginx and three orchestrators, each with a store of its own, or all with one Redis."""
    folder = tmp_path_factory.mktemp("three")
    with ExitStack() as stack:
        if request.param == "shared":
            redis = stack.enter_context(RedisServer(require_binary("redis-server"), appendonly=True))
            storages = [redis.url] * 3
        else:
            storages = [f"sqlite:{folder / f'jobs-{number}.db'}" for number in range(3)]
        edge = Edge(folder, storages)
        stack.callback(edge.stop)
        edge.start()
        yield edge


class Onlooker:
    """Somebody who only asks, never twice, and notes whatever is not as it should be."""

    PATHS = ("/_public/status", "/api/v1/blueprints", "/api/v1/workers", "/api/v1/queues")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.asked = 0
        self.bad: list[str] = []

    async def look(self, seconds: float) -> None:
        """For so long, by several at once."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._look(path, end) for path in self.PATHS))

    async def _look(self, path: str, end: float) -> None:
        while time.monotonic() < end:
            self.asked += 1
            try:
                answer = await self._caller.ask("GET", path)
                if answer.status != 200:
                    self.bad.append(f"{path}: {answer.status}")
            except aiohttp.ClientError as error:
                self.bad.append(f"{path}: {error!r}")
            await asyncio.sleep(0.03)


class Load:
    """A program that submits jobs all the time, and what has become of those that were acknowledged."""

    def __init__(self, edge: Edge) -> None:
        self._notes = edge.folder / "acknowledged"
        self._notes.write_text("")
        self._process = edge.program(str(PROGRAM), str(self._notes))

    def acknowledged(self) -> list[str]:
        return self._notes.read_text().split()

    async def held_by(self, orchestrator: Orchestrator) -> dict[str, str]:
        """Those that one orchestrator knows, and how they are."""
        async with Client(orchestrator.url, TOKENS["CLIENT_TOKEN"]) as client:
            asked = [client.get(job_id) for job_id in self.acknowledged()]
            found = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, JobObject | JobNotFound) for each in found)
        return {job.id: job.status for job in found if isinstance(job, JobObject)}

    def end(self) -> None:
        """Stop; whatever the client library did not get over is told here."""
        with self._process as process:
            try:
                _, trouble = process.communicate(timeout=8)
            finally:
                process.kill()
        assert (process.returncode, trouble) == (0, "")


def test_an_orchestrator_killed_under_load_costs_no_request_and_no_acknowledged_job(three: Edge) -> None:
    victim, load = three.orchestrators[1], Load(three)

    async def main() -> dict[str, str]:
        async with three.nginx.session() as caller:
            onlooker = Onlooker(caller)
            looking = asyncio.create_task(onlooker.look(4.5))
            await asyncio.sleep(1.5)
            held = await load.held_by(victim)
            await asyncio.to_thread(victim.end, signal.SIGKILL)
            await asyncio.sleep(1.0)
            victim.start()
            await asyncio.to_thread(victim.greet)
            await looking
        assert onlooker.bad == []
        assert onlooker.asked > 100
        return held

    try:
        held = asyncio.run(main())
    finally:
        load.end()

    assert len(load.acknowledged()) > 50
    assert "waiting_for_timer" in held.values()  # it was killed in the middle of them
    lines = three.nginx.requests("/")
    assert any(
        ", " in line["orchestrator"] or line["status"] == 502 for line in lines
    )  # and somebody met that

    def ended() -> bool:
        everywhere = [asyncio.run(load.held_by(each)) for each in three.orchestrators]
        assert set().union(*everywhere) == set(load.acknowledged())
        assert held.keys() <= everywhere[1].keys()
        return all(set(jobs.values()) == {"finished"} for jobs in everywhere)

    until(ended, "the end of every job")


async def test_an_orchestrator_stopped_in_good_order_costs_no_request(three: Edge) -> None:
    async with three.nginx.session() as caller:
        onlooker = Onlooker(caller)
        looking = asyncio.create_task(onlooker.look(2.5))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(three.orchestrators[0].end)
        three.orchestrators[0].start()
        await asyncio.to_thread(three.orchestrators[0].greet)
        await looking
        assert onlooker.bad == []
        assert onlooker.asked > 50


def test_a_worker_whose_orchestrator_is_gone_finds_the_next_one(three: Edge) -> None:
    logged = three.worker(WORKER_ID="wanderer")
    until(lambda: "by stream" in logged(), "the stream")
    (first,) = [line["orchestrator"] for line in three.nginx.requests("/_worker/workers/register")]
    victim = next(each for each in three.orchestrators if first.endswith(f":{each.port}"))

    victim.end(signal.SIGKILL)

    def asked() -> list[str]:
        registrations = three.nginx.requests("/_worker/workers/register")
        return [line["orchestrator"] for line in registrations if line["status"] == 200]

    until(lambda: len(asked()) > 1, "another registration")
    assert not re.search(rf":{victim.port}$", asked()[-1])
    victim.start()
    victim.greet()
    three.dismiss()


@pytest.mark.parametrize("three", ["shared"], indirect=True)
def test_a_task_that_runs_when_its_orchestrator_dies_is_finished_through_the_next_one(three: Edge) -> None:
    logged = three.worker(WORKER_ID="steady")
    until(lambda: "by stream" in logged(), "the stream")
    seat = three.nginx.requests("/_worker/workers/register")[-1]["orchestrator"]
    victim = next(each for each in three.orchestrators if seat.endswith(f":{each.port}"))

    async def main() -> JobObject:
        other = next(each for each in three.orchestrators if each is not victim)
        async with Client(other.url, TOKENS["CLIENT_TOKEN"]) as client:
            job = await client.submit("greet", {"name": "Ada", "seconds": 1.5})
            await asyncio.sleep(0.7)
            await asyncio.to_thread(victim.end, signal.SIGKILL)
            return await client.wait(job.id, timeout_s=8)

    job = asyncio.run(main())

    assert (job.status, job.result) == ("finished", "Hello, Ada!")
    victim.start()
    victim.greet()
    three.dismiss()
