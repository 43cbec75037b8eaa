"""Metrics over real HTTP: every name of the catalogue is really counted, and a scrape reads no storage."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from regista import InvalidInputError, RetryPolicy, StateMachineBlueprint, TransientError, Worker
from regista.blueprint import ActionFactory, JobContext
from regista.clock import SystemClock
from regista.errors import StorageUnavailable
from regista.model import CommitOutcome, Job, TaskResult
from regista.observe.metrics import Metrics
from regista.storage.memory import MemoryStorage
from tests.acceptance.any_store import history, redis_server, storage  # noqa: F401  # fixtures
from tests.acceptance.serving import House, serving
from tests.conftest import require_binary
from tests.prometheus_text import Series, families, parse, value
from tests.support import one_task, script


def crew() -> Worker:
    """Warm for "work"; does what `params` say."""
    hands = Worker("hands", concurrency=4, hot=["work"])
    runs: list[int] = []

    @hands.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        runs.append(1)
        if params.get("how") == "invalid":
            raise InvalidInputError("no")
        if params.get("how") == "once" and len(runs) % 2:
            raise TransientError("again")
        await asyncio.sleep(params.get("sleep", 0))
        return {"n": 1}

    return hands


def unserved(name: str = "unserved", **options: Any) -> StateMachineBlueprint:
    """Dispatches a task that nobody can do."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("alchemy", {}, transitions={"success": "done"}, queue="q-gold", **options)

    return script(start, "done", name=name)


def stumbles() -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        raise ValueError("boom")

    return script(start, "done", name="stumbles")


def endless() -> StateMachineBlueprint:
    """Runs itself until that is too deep."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("endless", {}, transitions={"success": "done"})

    return script(start, "done", name="endless")


async def scrape(house: House) -> dict[str, Series]:
    answer = await house.get("/_public/metrics", token=None)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.body.decode())


async def look(house: House) -> None:
    """What the loop does every five seconds."""
    (chore,) = [each for each in house.director.maintenance.chores if each.name == "store_sampler"]
    await chore.run_once(house.director.clock.now())


async def until(house: House, true: Callable[[dict[str, Series]], bool], what: str) -> dict[str, Series]:
    for _ in range(100):
        page = await scrape(house)
        if true(page):
            return page
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what} was not counted: {page}")


async def test_jobs_tasks_and_gauges_are_counted_on_every_store(storage: str, history: str) -> None:  # noqa: F811
    options: dict[str, Any] = {"history_database_uri": history} if history else {}
    plays = [one_task(retry=RetryPolicy(first_s=0.01, max_attempts=3)), unserved()]
    async with serving(*plays, workers=[crew()], storage=storage, **options) as house:
        # given jobs that end, and one that waits
        for how in ("well", "well", "once", "invalid"):
            job = await house.submit("script", {"how": how})
            await house.get(f"/api/v1/jobs/{job['id']}?wait=5")
        await house.submit("unserved")
        await asyncio.sleep(0.2)
        await look(house)

        # when somebody scrapes
        page = await scrape(house)

        # then everything is told
        assert value(page, "orchestrator_jobs_total", blueprint="script") == 4
        assert value(page, "orchestrator_jobs_failed_total", blueprint="script") == 1
        assert value(page, "orchestrator_jobs_ended_total", status="finished") == 3
        assert value(page, "orchestrator_job_duration_seconds_count", blueprint="script") == 4
        assert value(page, "orchestrator_attempts_total", task="work", outcome="success") == 3
        assert value(page, "orchestrator_attempts_total", task="work", outcome="failure") >= 1
        assert value(page, "orchestrator_task_queue_length", queue="q-gold") == 1
        assert 0.1 < value(page, "orchestrator_task_queue_oldest_seconds", queue="q-gold") < 5
        assert value(page, "orchestrator_active_workers") == 1
        assert value(page, "orchestrator_connected_workers") == 1
        started = value(page, "orchestrator_schedule_to_start_seconds_count", queue="work")
        assert started == value(page, "orchestrator_attempts_total", task="work")
        assert value(page, "orchestrator_store_up") == 1
        assert value(page, "orchestrator_history_up") == 1
        assert value(page, "orchestrator_store_flush_seconds_count") > 5


class Moody(MemoryStorage):
    """A store that is away, or broken, when it is told to be; and that counts who asks."""

    mood = "well"
    asked = 0

    async def commit(self, changes: Any, instance: str) -> list[CommitOutcome]:
        self._say()
        return await super().commit(changes, instance)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        self._say()
        return await super().get(job_ids)

    async def queue_status(self) -> Any:
        self._say()
        return await super().queue_status()

    async def workers(self, ids: Any = None, *, lapsed_only: bool = False) -> Any:
        self._say()
        return await super().workers(ids, lapsed_only=lapsed_only)

    def _say(self) -> None:
        self.asked += 1
        if self.mood == "away":
            raise StorageUnavailable("away")
        if self.mood == "broken":
            raise RuntimeError("broken")


async def test_a_scrape_and_a_status_read_no_storage() -> None:
    store = Moody(SystemClock())
    async with serving(one_task(), workers=[crew()], storage=store) as house:
        await look(house)
        await house.director.maintenance.stop()  # nobody else asks meanwhile
        before = store.asked

        page = await scrape(house)
        status = (await house.get("/_public/status", token=None)).json

        assert store.asked == before
        assert value(page, "orchestrator_active_workers") == 1
        assert (status["status"], status["state"], status["instance"]) == ("ok", "ready", "served")


async def test_a_store_that_is_away_makes_the_system_degraded_and_then_well_again() -> None:
    store = Moody(SystemClock())
    async with serving(one_task(), workers=[crew()], storage=store) as house:
        await house.director.maintenance.stop()
        store.mood = "away"
        await look(house)

        status = (await house.get("/_public/status", token=None)).json
        page = await scrape(house)
        store.mood = "well"
        await look(house)
        later = (await house.get("/_public/status", token=None)).json

        assert (status["state"], status["reasons"]) == ("degraded", ["store_unavailable"])
        assert value(page, "orchestrator_store_up") == 0
        assert value(page, "orchestrator_system_state", state="degraded") == 1
        assert (later["state"], later["reasons"]) == ("ready", [])


async def _receiver(request: web.Request) -> web.Response:
    return web.Response()


@pytest.mark.timeout(30)
async def test_every_metric_of_the_catalogue_is_really_counted(tmp_path: Path) -> None:
    receiver = web.Application()
    receiver.router.add_post("/hook", _receiver)
    runner = web.AppRunner(receiver)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hook = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        await _walk(hook, tmp_path / "files")
    finally:
        await runner.cleanup()


async def _walk(hook: str, files: Path) -> None:
    store = Moody(SystemClock())
    plays = [
        one_task(retry=RetryPolicy(first_s=0.01, max_attempts=3)),
        unserved(),
        unserved("late", dispatch_timeout=0.05),
        stumbles(),
        endless(),
    ]
    settings = {
        "job_max_retries": 0,
        "lease_s": 0.5,
        "worker_require_signatures": True,
        "rate_limits": {"read": "30/d"},
        "webhook_allow_private": ("127.0.0.0/8",),
        "payloads": f"file://{files}",
    }
    async with serving(*plays, workers=[crew()], storage=store, **settings) as house:
        for blueprint, how in [("script", "once"), ("script", "invalid"), ("late", ""), ("unserved", "")]:
            await house.submit(blueprint, {"how": how}, webhook_url=hook)
        await house.submit("stumbles")
        await house.submit("script", {"large": "x" * 400_000})
        await house.submit("endless")
        await house.submit("script", {"sleep": 60})
        stray = TaskResult(task_id="nobody_0_0-1", job_id="nobody", worker_id="hands")
        await house.director.workers.deliver(stray)
        every = {"name": "tick", "blueprint": "script", "interval_seconds": 86400}
        assert (await house.post("/api/v1/schedules", every, token="t-ops")).status == 201
        assert (await house.post("/api/v1/schedules/tick/trigger", {}, token="t-ops")).status < 300
        await house.get("/api/v1/jobs", token="wrong")
        await house.post("/api/v1/workers/hands/drain", {"on": False})
        await house.post(
            "/_worker/workers/register", {"worker_id": "w", "supported_skills": []}, token=None,
            headers={"X-Worker-Token": "t-worker"},
        )  # fmt: skip
        for _ in range(31):
            await house.get("/api/v1/queues")
        late = ("loop_lag_seconds_count", "webhook_deliveries_total", "jobs_timeouts_total")
        # Before the store is away: after that nothing expires for a lease.
        await until(
            house,
            lambda page: all(value(page, f"orchestrator_{name}") for name in late),
            "the loop's lag, a webhook or a timeout",
        )
        store.mood = "broken"
        await house.get("/api/v1/jobs/any", token="t-ops")
        store.mood = "away"
        assert (await house.post("/api/v1/jobs", {"blueprint": "script"})).status == 503
        store.mood = "well"
        await look(house)
        page = await scrape(house)

    names = {meter.name: meter.kind for meter in Metrics().all}
    counted = {
        name for name, kind in names.items() if value(page, f"{name}_count" if kind == "histogram" else name)
    }
    gauges_that_may_be_zero = {"orchestrator_history_lag_entries", "orchestrator_history_lag_seconds"}
    assert set(names) - counted <= gauges_that_may_be_zero


async def test_the_page_needs_no_extra() -> None:
    async with serving(one_task()) as house:
        house.director.telemetry.installed = False

        answer = await house.get("/_public/metrics", token=None)

        assert answer.status == 200


async def test_switched_off_nothing_is_counted_and_the_page_says_so() -> None:
    async with serving(one_task(), workers=[crew()], otel_disabled=True) as house:
        job = await house.submit("script")
        await house.get(f"/api/v1/jobs/{job['id']}?wait=5")

        answer = await house.get("/_public/metrics", token=None)

        assert (answer.status, answer.code) == (501, "telemetry_disabled")
        assert house.director.engine._storage is house.director.storage


async def test_the_page_names_the_type_of_every_metric() -> None:
    async with serving(one_task(), workers=[crew()]) as house:
        await house.submit("script")
        page = (await house.get("/_public/metrics", token=None)).body.decode()

    kinds = {meter.name: meter.kind for meter in Metrics().all}
    assert families(page).items() <= kinds.items()


async def test_where_a_token_is_set_only_whoever_brings_it_reads_the_page() -> None:
    secret = "only-for-prometheus"
    async with serving(one_task(), metrics_token=secret) as house:
        for headers, code in (
            ({}, "token_missing"),
            ({"Authorization": "Bearer \xff-t-ada"}, "token_unknown"),
        ):
            refused = await house.get("/_public/metrics", token=None, headers=headers)
            assert (refused.status, refused.code) == (401, code)
        good = {"Authorization": f"Bearer {secret}"}
        assert (await house.get("/_public/metrics", token=None, headers=good)).status == 200


async def test_promtool_finds_nothing_wrong_with_the_page() -> None:
    async with serving(one_task(), unserved(), workers=[crew()]) as house:
        job = await house.submit("script")
        await house.submit("unserved")
        await house.get(f"/api/v1/jobs/{job['id']}?wait=5")
        await look(house)
        page = (await house.get("/_public/metrics", token=None)).body

    command = [require_binary("promtool"), "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=page, capture_output=True)

    assert done.returncode == 0, done.stdout + done.stderr
