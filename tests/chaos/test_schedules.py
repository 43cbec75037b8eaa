"""Two orchestrators over one Redis, killed again and again: each tick of a schedule has one job. FENCES 19, promise 8."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from regista.clock import SystemClock
from regista.config.schedules_file import read_schedules
from regista.engines.native.submissions import job_id_for_key
from regista.schedules.calendar import moment
from regista.schedules.registry import ScheduleRegistry, StoredSchedule
from regista.schedules.state import PendingStart, tick_key
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import shown
from regista.testing.invariants import check_schedule
from tests.acceptance.edge import APP, Orchestrator
from tests.acceptance.nginx_kit import TOKENS
from tests.acceptance.processes import OURS
from tests.conftest import Require
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

SCHEDULES = """
[each_second]
blueprint = "steps"
interval_seconds = 1
catch_up = "all"

[one_at_a_time]
blueprint = "steps"
interval_seconds = 1
catch_up = "all"
overlap = "skip"

[jittery]
blueprint = "steps"
interval_seconds = 2
jitter_seconds = 2
"""
KILLS = 2


async def _remains(path: Path, url: str) -> list[tuple[StoredSchedule, set[str]]]:
    """Every schedule as it is stored, and which jobs of its ticks exist."""
    storage = RedisStorage(url, SystemClock())
    await storage.start()
    try:
        book = ScheduleRegistry(storage, SystemClock(), "UTC")
        book.use_file(read_schedules(path, "UTC"))
        found = []
        for entry in await book.all():
            since = entry.state.created_at
            assert since is not None
            ticks = [moment(tick) for tick in entry.calendar.between(since, entry.state.cursor)]
            ids = [
                job_id_for_key(entry.schedule.client, tick_key(entry.name, PendingStart(tick)))
                for tick in ticks
            ]
            found.append((entry, {job_id for job_id in ids if await shown(storage, job_id) is not None}))
        return found
    finally:
        await storage.stop()


def test_orchestrators_that_are_killed_fire_each_tick_once(tmp_path: Path, require: Require) -> None:
    (tmp_path / "app.py").write_text(APP)
    path = tmp_path / "schedules.toml"
    path.write_text(SCHEDULES)
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    env = inherited | TOKENS | {"SCHEDULES_CONFIG_PATH": str(path)}
    chance = random.Random(7)
    with RedisServer(require("redis-server"), appendonly=True) as server:
        pair = [Orchestrator(tmp_path, f"o{number}", server.url, env) for number in (1, 2)]
        try:
            for one in pair:
                one.start()
            for one in pair:
                one.greet()
            for number in range(KILLS):
                time.sleep(chance.uniform(0.5, 1.5))
                victim = pair[number % 2]
                victim.end(signal.SIGKILL)
                victim.start()
                victim.greet()
            time.sleep(6.5)  # whoever led is dead, and its leadership must end first
        finally:
            for one in pair:
                one.end()
        remains = asyncio.run(_remains(path, server.url))

    assert len(remains) == 3
    for entry, jobs in remains:
        check_schedule(entry, jobs.__contains__)
        fired = {record.job_id for record in entry.state.records if record.kind == "started"}
        assert fired <= jobs
        assert len(jobs) >= 3, entry
    each_second = next(entry for entry, _ in remains if entry.name == "each_second")
    assert each_second.state.skipped == 0
