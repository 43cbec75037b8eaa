"""How many jobs a client may have accepted in a month, tried at the running server on every store."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista import ActionFactory, Client, ClientConfig, Config, JobContext, OrchestratorEngine
from regista.clock import StoreClock, SystemClock
from regista.engines.native.submissions import job_id_for_key
from regista.errors import QuotaExceeded
from regista.testing.conformance.storage.kit import shown
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.processes import House as Processes
from tests.redis_server import RedisServer
from tests.support import script

__all__ = ["redis_server", "storage"]  # fixtures

TOKENS = {"t-ada": "ada", "t-bob": "bob", "t-all": "all"}
CLIENTS = {
    "ada": ClientConfig(name="ada", plan="small", monthly_attempts=3),
    "bob": ClientConfig(name="bob", monthly_attempts=3),
    "all": ClientConfig(name="all", operator=True),
}


class House:
    """An orchestrator, and its clients by name."""

    def __init__(self, director: OrchestratorEngine, url: str, runs: list[str]) -> None:
        self.director = director
        #: The jobs whose first handler ran.
        self.runs = runs
        self.url = url
        self.clients = {name: Client(url, token) for token, name in TOKENS.items()}

    async def submit(self, client: str = "ada", **options: Any) -> str:
        """The id of a new job."""
        return (await self.clients[client].submit("script", **options)).id

    async def used(self, client: str = "ada") -> int:
        used: int = (await self.clients[client].me())["quota"]["used"]
        return used

    async def post(self, body: Any, path: str = "/api/v1/jobs") -> tuple[int, dict[str, str], Any]:
        """A raw request of ada."""
        headers = {"X-Client-Token": "t-ada"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.url + path, json=body, headers=headers) as answer,
        ):
            return answer.status, dict(answer.headers), await answer.json(content_type=None)


@asynccontextmanager
async def serving(store: str, clock: StoreClock | None = None, **settings: Any) -> AsyncIterator[House]:
    """An orchestrator on this store."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        if context.initial_data.get("bears"):
            actions.run_blueprint("script", {}, {"success": "done"})
        else:
            actions.transition_to("done")

    runs: list[str] = []
    config = Config(worker_token="t-worker", **settings)
    of_the_file = "clients_config_path" in settings
    who: dict[str, Any] = {} if of_the_file else {"clients": CLIENTS, "client_tokens": TOKENS}
    director = OrchestratorEngine(store, config, clock=clock, **who)
    director.register_blueprint(script(start, "done"))
    site = await director.serve(port=0)
    house = House(director, site.url, runs)
    try:
        yield house
    finally:
        for client in house.clients.values():
            await client.close()
        await director.stop(0.0)


async def test_a_client_gets_as_many_jobs_as_it_may_have_and_is_told_when_more_come(storage: str) -> None:
    async with serving(storage) as house:
        for _ in range(3):
            await house.submit()
        status, headers, problem = await house.post({"blueprint": "script"})

        assert (status, problem["code"]) == (429, "quota_exceeded")
        assert (problem["limit"], problem["used"]) == (3, 3)
        resets_at = datetime.fromisoformat(problem["resets_at"])
        assert resets_at.day == 1
        left_s = (resets_at - datetime.now(UTC)).total_seconds()
        assert abs(int(headers["Retry-After"]) - left_s) < 60
        with pytest.raises(QuotaExceeded, match="3 of 3 jobs of this month") as refused:
            await house.submit(idempotency_key="late")
        assert (refused.value.limit, refused.value.used) == (3, 3)
        assert refused.value.resets_at == problem["resets_at"]
        # Nothing was written, no handler ran, and nobody else is concerned.
        assert len(house.runs) == 3
        assert await shown(house.director.storage, job_id_for_key("ada", "late")) is None
        await house.submit("bob")
        for _ in range(5):
            await house.submit("all")


async def test_who_asks_is_told_what_is_left(storage: str) -> None:
    async with serving(storage, tz="Europe/Madrid") as house:
        await house.submit()
        me = await house.clients["ada"].me()
        resets_at = datetime.fromisoformat(me["quota"].pop("resets_at"))
        assert me == {"name": "ada", "plan": "small", "operator": False, "quota": {"limit": 3, "used": 1}}
        assert (resets_at.day, resets_at.hour) == (1, 0)
        assert resets_at.utcoffset() in (timedelta(hours=1), timedelta(hours=2))
        everybody = await house.clients["all"].me()
        assert everybody == {"name": "all", "plan": "", "operator": True, "quota": None}


async def test_a_repeat_counts_nothing_and_is_answered_when_the_quota_is_used_up(storage: str) -> None:
    async with serving(storage) as house:
        first = await house.submit(idempotency_key="k1")
        assert await house.submit(idempotency_key="k1") == first
        assert await house.used() == 1
        await house.submit()
        await house.submit()
        assert await house.submit(idempotency_key="k1") == first
        with pytest.raises(QuotaExceeded):
            await house.submit(idempotency_key="k2")


async def test_a_batch_is_refused_item_by_item(storage: str) -> None:
    async with serving(storage) as house:
        key = {"blueprint": "script", "idempotency_key": "k"}
        await house.post(key)
        wishes = [{"blueprint": "script"}, {"blueprint": "unknown"}, key, *[{"blueprint": "script"}] * 3]
        status, _, answer = await house.post({"jobs": wishes}, "/api/v1/jobs:batch")

        assert status == 200
        codes = [item.get("code", "a job") for item in answer["items"]]
        assert codes == [
            "a job",
            "blueprint_not_found",
            "a job",
            "a job",
            "quota_exceeded",
            "quota_exceeded",
        ]
        assert answer["items"][4]["limit"] == 3
        assert await house.used() == 3


async def test_children_and_what_the_house_starts_itself_count_for_nobody(storage: str) -> None:
    async with serving(storage) as house:
        job = await house.clients["ada"].run("script", {"bears": True})
        assert job.status == "finished"
        await house.director.create_background_job("script", source="ada")
        await house.director.submit("script", client="ada")
        assert await house.used() == 1


async def test_forks_and_a_blueprints_own_endpoint_count_too(storage: str) -> None:
    async with serving(storage) as house:
        job = await house.submit()
        for _ in range(2):
            assert (await house.post({}, f"/api/v1/jobs/{job}/fork"))[0] == 202
        assert (await house.post({}, f"/api/v1/jobs/{job}/fork"))[2]["code"] == "quota_exceeded"


async def test_many_at_once_never_pass_the_quota(storage: str) -> None:
    async with serving(storage) as house:
        answers = await asyncio.gather(*(house.submit() for _ in range(20)), return_exceptions=True)
        assert sum(isinstance(answer, str) for answer in answers) == 3
        assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 17


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_restart_keeps_what_was_counted(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        store = server.url

    async with serving(store) as house:
        await house.submit()
        await house.submit()
    async with serving(store) as house:
        assert await house.used() == 2
        await house.submit()
        with pytest.raises(QuotaExceeded):
            await house.submit()


async def test_two_orchestrators_on_one_store_count_as_one(redis_server: RedisServer) -> None:
    redis_server.ask("FLUSHALL")

    async with (
        serving(redis_server.url, instance_id="one") as one,
        serving(redis_server.url, instance_id="two") as two,
    ):
        calls = [house.submit() for _ in range(5) for house in (one, two)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, str) for answer in answers) == 3
        assert await one.used() == await two.used() == 3


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_it_begins_anew_with_the_month_of_the_zone(kind: str, tmp_path: Path) -> None:
    store = "memory" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"

    clock = StoreClock(SystemClock())
    # 23:30 in Madrid on the last day of November: 22:30 UTC.
    clock.ahead = datetime(2031, 11, 30, 22, 30, tzinfo=UTC) - datetime.now(UTC)
    async with serving(store, clock, tz="Europe/Madrid") as house:
        for _ in range(3):
            await house.submit()
        with pytest.raises(QuotaExceeded, match="2031-12-01T00:00:00\\+01:00"):
            await house.submit()
        clock.ahead += timedelta(minutes=29)
        assert await house.used() == 3
        clock.ahead += timedelta(minutes=2)
        assert await house.used() == 0
        await house.submit()
        assert await house.used() == 1


def test_another_limit_counts_from_the_next_reading_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"

    def allow(jobs: str) -> None:
        file.write_text(f'[ada]\ntoken = "t-ada"\n{jobs}\n')

    async def play() -> None:
        async with serving("memory", clients_config_path=str(file)) as house:
            await house.submit()
            with pytest.raises(QuotaExceeded, match="1 of 1"):
                await house.submit()
            allow("monthly_attempts = 2")
            assert house.director.reload()
            await house.submit()
            allow("monthly_attempts = 1")
            assert house.director.reload()
            with pytest.raises(QuotaExceeded, match="2 of 1"):
                await house.submit()
            allow("")
            assert house.director.reload()
            await house.submit()
            assert (await house.clients["ada"].me())["quota"] is None

    allow("monthly_attempts = 1")
    asyncio.run(play())


async def test_whoami_says_it_on_the_command_line() -> None:
    async def said(house: House, *flags: str) -> str:
        command = (sys.executable, "-m", "regista", "whoami", "--url", house.url, *flags)
        env = os.environ | {"CLIENT_TOKEN": "t-ada"}
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode()

    async with serving("memory") as house:
        await house.submit()
        words = await said(house)
        assert "ada: a client on the plan small" in words
        assert "1 of 3 jobs this month, 2 left" in words
        assert json.loads(await said(house, "--json"))["quota"]["used"] == 1


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_killed_orchestrator_has_counted_what_it_accepted(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    processes = Processes(tmp_path)
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        processes.set(REGISTA_STORAGE=server.url)
    (tmp_path / "clients.toml").write_text('[ada]\ntoken = "t-ada"\nmonthly_attempts = 60\n')
    processes.set(CLIENTS_CONFIG_PATH="clients.toml", WORKER_TOKEN="t-worker")

    async def play() -> None:
        victim = await asyncio.to_thread(processes.serve)
        async with Client(processes.url, "t-ada") as client:
            asked = [client.submit("ask", idempotency_key=f"k{n}") for n in range(100)]
            waiting = asyncio.gather(*asked, return_exceptions=True)
            while (await client.me())["quota"]["used"] < 5:  # noqa: ASYNC110
                await asyncio.sleep(0)
            victim.kill()
            await asyncio.to_thread(processes.serve)
            answers = await waiting
            accepted = {answer.id for answer in answers if not isinstance(answer, BaseException)}
            assert len(accepted) == 60
            assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 40
            assert (await client.me())["quota"]["used"] == 60
            for job_id in accepted:
                assert (await client.get(job_id)).id == job_id

    try:
        asyncio.run(play())
    finally:
        processes.close()
