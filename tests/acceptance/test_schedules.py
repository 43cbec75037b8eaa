"""Schedules, the timeline and the upkeep at the running server, on every store."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regista import ActionFactory, Client, JobContext, Worker
from regista.errors import ScheduleInFile, ScheduleNotFound
from tests.acceptance.any_store import history, redis_server, storage
from tests.acceptance.serving import House, serving
from tests.support import one_task, script

__all__ = ["history", "redis_server", "storage"]


def at_once(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


async def until(ask: Callable[[], Awaitable[Any]], patience_s: float = 8.0) -> Any:
    """What is asked for, once it is there."""
    end = time.monotonic() + patience_s
    while True:
        found = await ask()
        if found or time.monotonic() > end:
            assert found
            return found
        await asyncio.sleep(0.05)


async def _make(house: House, name: str, **members: Any) -> Any:
    answer = await house.post(
        "/api/v1/schedules", {"name": name, "blueprint": "quick", **members}, token="t-ops"
    )
    assert answer.status == 201, answer.body
    return answer.json


def test_a_schedule_made_over_the_api_starts_jobs_that_say_so(storage: str, history: str) -> None:
    async def main() -> None:
        quick = script(at_once, "done", name="quick")
        async with serving(quick, storage=storage, history_database_uri=history) as house:
            made = await _make(house, "beat", interval_seconds=1, input_data={"n": 1}, client="ada")
            assert (made["source"], made["when"], made["paused"]) == ("api", "every 1 s", False)

            async def fired() -> Any:
                now = (await house.get("/api/v1/schedules/beat", token="t-ops")).json
                return now if now["fired"] >= 2 else None

            now = await until(fired)
            started = [one for one in now["records"] if one["kind"] == "started"]
            ticks = [one["tick"] for one in started]
            assert len(set(ticks)) == len(ticks)
            assert ticks == sorted(ticks, reverse=True)
            job = (await house.get(f"/api/v1/jobs/{started[0]['job_id']}")).json
            assert (job["blueprint"], job["input"]) == ("quick", {"n": 1})

    asyncio.run(main())


async def test_people_pause_resume_trigger_and_delete(storage: str, history: str) -> None:
    quick = script(at_once, "done", name="quick")
    async with (
        serving(quick, storage=storage, history_database_uri=history) as house,
        Client(house.url, "t-ops") as client,
    ):
        await _make(house, "s", daily_at="07:30", timezone="Europe/Madrid")
        assert [one["name"] for one in await client.schedules.list()] == ["s"]
        ticks = await client.schedules.next("s", 3)
        assert len(ticks) == 3
        paused = await client.schedules.pause("s", "holidays")
        assert (paused["paused"], paused["next"]) == (True, None)
        assert (await client.schedules.resume("s"))["next"] is not None
        job_id = await client.schedules.trigger("s", "k")
        assert await client.schedules.trigger("s", "k") == job_id
        kinds = [one["kind"] for one in (await client.schedules.get("s"))["records"]]
        assert kinds == ["triggered", "resumed", "paused"]
        await client.schedules.delete("s")
        with pytest.raises(ScheduleNotFound):
            await client.schedules.get("s")
        with pytest.raises(ScheduleNotFound):
            await client.schedules.delete("s")


def test_schedules_of_the_file_are_there_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "schedules.toml"
    path.write_text('[beat]\nblueprint = "quick"\ninterval_seconds = 1\noverlap = "skip"\n')

    async def main() -> None:
        quick = script(at_once, "done", name="quick")
        async with (
            serving(quick, schedules_config_path=str(path)) as house,
            Client(house.url, "t-ops") as client,
        ):

            async def fired() -> Any:
                return (await client.schedules.get("beat"))["fired"]

            await until(fired)
            assert (await client.schedules.get("beat"))["source"] == "file"
            with pytest.raises(ScheduleInFile):
                await client.schedules.delete("beat")

    asyncio.run(main())


async def test_only_operators_see_and_move_schedules_and_chores() -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        await _make(house, "s", cron="@daily")
        for path in ("schedules", "schedules/s", "schedules/s/next", "chores"):
            answer = await house.get(f"/api/v1/{path}")
            assert (answer.status, answer.code) == (403, "operators_only")
        for path in ("pause", "resume", "trigger", "delete"):
            answer = await house.post(f"/api/v1/schedules/s/{path}", {})
            assert (answer.status, answer.code) == (403, "operators_only")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "s", "blueprint": "quick"}, 400, "schedule_invalid"),
        ({"name": "s", "blueprint": "quick", "cron": "* * *"}, 400, "schedule_invalid"),
        ({"name": "s", "blueprint": "quick", "cron": "@daily", "timezone": "Mars"}, 400, "schedule_invalid"),
        ({"name": "s", "blueprint": "nobody", "cron": "@daily"}, 404, "blueprint_not_found"),
        ({"name": "a b", "blueprint": "quick", "cron": "@daily"}, 400, "invalid_body"),
        ({"name": "s", "blueprint": "quick", "interval_second": 5}, 400, "unknown_member"),
        ({"name": "s", "blueprint": "quick", "interval_seconds": 0}, 400, "invalid_body"),
        ({"name": "taken", "blueprint": "quick", "cron": "@hourly"}, 409, "schedule_exists"),
    ],
)
async def test_what_cannot_be_followed_is_refused(body: dict[str, Any], status: int, code: str) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        await _make(house, "taken", cron="@daily")
        answer = await house.post("/api/v1/schedules", body, token="t-ops")
        assert (answer.status, answer.code) == (status, code)


async def test_names_that_are_none_are_not_found() -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        for name in ("nobody", "%00", "a%20b", "%ff", "x" * 300):
            answer = await house.get(f"/api/v1/schedules/{name}", token="t-ops")
            assert (answer.status, answer.code) == (404, "schedule_not_found")


async def test_the_timeline_of_a_job_is_one_call(storage: str, history: str) -> None:
    worker = Worker("crew")
    worker.task("work")(lambda params: {})

    async with (
        serving(one_task(), workers=[worker], storage=storage, history_database_uri=history) as house,
        Client(house.url, "t-ada") as client,
    ):
        job = await client.run("script", {})
        line = await client.timeline(job.id)

        assert [state.state for state in line.states] == ["start", "done"]
        (task,) = line.states[0].tasks
        assert (task.type, task.outcome, task.attempts[0].worker_id) == ("work", "finished", "crew")
        assert (line.status, line.ended_at) == ("finished", job.finished_at)
        stranger = await house.get(f"/api/v1/jobs/{job.id}/timeline", token="t-bob")
        assert (stranger.status, stranger.code) == (404, "job_not_found")


async def test_a_live_job_has_an_open_timeline() -> None:
    async with serving(one_task()) as house, Client(house.url, "t-ada") as client:
        job = await client.submit("script")
        line = await client.timeline(job.id)

        assert (line.ended_at, line.states[-1].ended_at) == (None, None)
        assert [(wait.reason, wait.ended_at) for wait in line.states[0].tasks[0].waits] == [("worker", None)]


def test_every_chore_is_told_of() -> None:
    async def main() -> None:
        async with serving(one_task()) as house, Client(house.url, "t-ops") as client:

            async def all_ran() -> Any:
                told = await client.chores()
                quick = [one for one in told["items"] if one["interval_s"] <= 2]
                return told if all(one["runs"] for one in quick) else None

            told = await until(all_ran)
            assert told["instance"] == "served"
            names = {one["name"] for one in told["items"]}
            assert {"watcher", "health_checker", "recovery", "scheduler"} <= names
            for one in told["items"]:
                assert one["failures"] == 0, one
                assert one["runs"] == 0 or one["last_duration_s"] >= 0

    asyncio.run(main())
