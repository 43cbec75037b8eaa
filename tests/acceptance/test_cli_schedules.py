"""`regista schedules`, `regista upkeep` and `regista jobs show --timeline`, said to a running server."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from regista import ActionFactory, JobContext, Worker
from regista.cli import main as regista
from tests.acceptance.serving import House, serving
from tests.support import one_task, script

Say = Callable[..., Awaitable[str]]


def at_once(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command in a thread of its own; what it wrote, after a look at its exit code."""
    monkeypatch.setenv("CLIENT_TOKEN", "t-ops")

    async def run(house: House, *words: str, code: int = 0) -> str:
        done = await asyncio.to_thread(regista, [*words, "--url", house.url])
        out, err = capsys.readouterr()
        assert done == code, err
        return out if code == 0 else err

    return run


async def test_a_schedule_from_its_making_to_its_end(say: Say) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        made = await say(
            house, "schedules", "create", "report", "quick", "--cron", "30 7 * * mon-fri",
            "--timezone", "Europe/Madrid", "--overlap", "skip", "--input", '{"n": 1}', "--jitter", "5",
        )  # fmt: skip
        assert made.startswith("report  quick  cron 30 7 * * mon-fri  next ")
        await say(house, "schedules", "create", "often", "quick", "--every", "60", "--paused")
        listed = await say(house, "schedules", "list")
        assert [line.split()[0] for line in listed.splitlines()] == ["SCHEDULE", "often", "report"]
        assert "paused" in listed
        assert "Europe/Madrid" in listed
        ticks = await say(house, "schedules", "next", "report", "--count", "3")
        assert ticks.count("fires at") == 3
        job_id = (await say(house, "schedules", "trigger", "report")).strip()
        assert "holidays" not in await say(house, "schedules", "show", "report")
        await say(house, "schedules", "pause", "report", "--reason", "holidays")
        shown = await say(house, "schedules", "show", "report")
        assert job_id in shown
        assert "holidays" in shown
        assert "next" in await say(house, "schedules", "resume", "report")
        assert "its jobs are kept" in await say(house, "schedules", "delete", "report")
        assert "no schedule named" in await say(house, "schedules", "show", "report", code=1)


async def test_every_answer_is_there_as_json(say: Say) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        made = json.loads(
            await say(
                house,
                "schedules",
                "create",
                "a",
                "quick",
                "--daily-at",
                "7:00",
                "--daily-at",
                "9:00",
                "--json",
            )
        )
        assert made["schedule"]["daily_at"] == ["7:00", "9:00"]
        assert len(json.loads(await say(house, "schedules", "list", "--json"))["items"]) == 1
        assert len(json.loads(await say(house, "schedules", "next", "a", "--json"))["items"]) == 10
        assert json.loads(await say(house, "schedules", "trigger", "a", "--json"))["job_id"]
        assert json.loads(await say(house, "schedules", "show", "a", "--json"))["fired"] == 1
        assert json.loads(await say(house, "schedules", "delete", "a", "--json"))["deleted"] is True
        told = json.loads(await say(house, "chores", "--json"))
        assert {"scheduler", "reputation", "index_cleaner"} <= {one["name"] for one in told["items"]}


async def test_mistakes_are_told_in_a_line(say: Say) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        assert "five fields" in await say(house, "schedules", "create", "a", "quick", "--cron", "x", code=2)
        missing = await say(house, "schedules", "create", "a", "quick", code=2)
        assert (
            "expected exactly one of --every, --daily-at, --weekly-days, --monthly-dates, --cron" in missing
        )
        odd = ("--every", "5", "--overlap", "sometimes")
        said = await say(house, "schedules", "create", "a", "quick", *odd, code=2)
        assert said == (
            "regista: --overlap: expected one of allow, skip, cancel_previous, buffer_one, got 'sometimes'\n"
        )
        assert "no blueprint named" in await say(
            house, "schedules", "create", "a", "no", "--every", "5", code=1
        )
        assert "--members" in await say(
            house, "schedules", "create", "a", "quick", "--members", '{"name": "b"}', code=2
        )


async def test_the_chores_are_a_table(say: Say) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        await asyncio.sleep(0.2)
        told = await say(house, "chores")
        rows = {line.split()[0]: line for line in told.splitlines()}
        assert "this instance" in rows["scheduler"]
        assert " every " in rows["watcher"]


async def test_a_job_is_drawn_as_bars(say: Say) -> None:
    worker = Worker("crew")
    worker.task("work")(lambda params: {})

    async with serving(one_task(), workers=[worker]) as house:
        job = await house.director.run_job("script", {})
        drawn = await say(house, "jobs", "show", job.id, "--timeline")
        lines = drawn.splitlines()
        assert lines[0].startswith(f"{job.id}  script  finished")
        assert "█" in lines[1]
        assert any("work by crew" in line for line in lines)
        told = json.loads(await say(house, "jobs", "show", job.id, "--timeline", "--json"))
        assert [state["state"] for state in told["states"]] == ["start", "done"]
