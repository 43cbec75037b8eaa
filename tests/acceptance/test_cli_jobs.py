"""`regista jobs` said to a running server: whose jobs they are, their files, and what is too large to be shown."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from regista import ActionFactory, JobContext, PermanentError, StateMachineBlueprint, Worker
from regista.cli import main as regista
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks
from tests.support import one_task, script

Say = Callable[..., Awaitable[tuple[str, str]]]

BIG = "x" * 2_000_000


def at_once(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    """Runs a command as somebody; what it wrote to both streams, after a look at its exit code."""
    monkeypatch.chdir(tmp_path)

    async def run(house: House, *words: str, code: int = 0, who: str = "t-ada") -> tuple[str, str]:
        monkeypatch.setenv("CLIENT_TOKEN", who)
        done = await asyncio.to_thread(regista, [*words, "--url", house.url])
        out, err = capsys.readouterr()
        assert done == code, err
        return out, err

    return run


async def test_an_operator_sees_whose_each_job_is_and_whether_there_are_more(say: Say) -> None:
    async with serving(script(at_once, "done", name="quick")) as house:
        for _ in range(3):
            await say(house, "jobs", "run", "quick")

        out, err = await say(house, "jobs", "list", "--limit", "2", who="t-ops")
        assert out.splitlines()[0].split()[-1] == "CLIENT"
        assert [line.split()[-1] for line in out.splitlines()[1:]] == ["ada", "ada"]
        assert "there are more" in err
        assert json.loads((await say(house, "jobs", "list", "--limit", "2", "--json"))[0])["more"] is True

        out, err = await say(house, "jobs", "list", "--limit", "3")
        assert "CLIENT" not in out
        assert err == ""
        told = json.loads((await say(house, "jobs", "list", "--json", who="t-ops"))[0])
        assert (len(told["items"]), told["more"]) == (3, False)
        assert {job["client"] for job in told["items"]} == {"ada"}
        shown, _ = await say(house, "jobs", "show", told["items"][0]["id"], who="t-ops")
        assert "client       ada" in shown


async def test_who_waits_while_no_worker_comes_is_told_where_to_look(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regista.cli.follow._WONDER_S", 0.2)
    async with serving(one_task()) as house:
        out, err = await say(house, "jobs", "run", "script", "--wait", "--timeout", "1", code=5)
        job_id = out.split()[1]
        assert err.count(f"regista jobs explain {job_id}") == 1


async def test_a_job_may_bound_the_time_of_its_tasks(say: Say) -> None:
    async with serving(one_task()) as house:
        words = ("jobs", "run", "script", "--wait", "--dispatch-timeout", "0.2", "--result-timeout", "9")
        out, err = await say(house, *words, code=1)
        assert "dispatch_timeout" in out + err


async def test_a_failed_job_shows_what_its_worker_told_and_how_to_begin_again(say: Say) -> None:
    careful = Worker("careful")

    @careful.task("work")
    def work() -> None:
        raise PermanentError("no such codec", codec="av2")

    async with serving(one_task(), workers=[careful]) as house:
        out, _ = await say(house, "jobs", "run", "script", "--wait", code=4)
        job_id = out.split()[1]
        shown, _ = await say(house, "jobs", "show", job_id)
        assert 'PERMANENT_ERROR: no such codec {"codec":"av2"}' in shown
        assert f"{job_id}_1_0-1" in shown
        await say(house, "jobs", "fail", job_id)
        _, err = await say(house, "jobs", "retry", job_id, code=1)
        assert f"`regista jobs fork {job_id}` starts a new job like it" in err
        explained, _ = await say(house, "jobs", "explain", job_id)
        assert f"regista jobs fork {job_id}" in explained


async def test_who_looks_for_dead_letters_is_told_of_those_still_tried(say: Say) -> None:
    nobody = "http://127.0.0.1:1/hook"
    async with serving(script(at_once, "done", name="quick"), webhook_allow_private=("127.0.0.1",)) as house:
        await say(house, "jobs", "run", "quick", "--webhook", nobody, "--wait")
        out, err = await say(house, "webhooks", "list")
        assert nobody not in out
        assert err == "No failed deliveries\n1 pending: --state pending\n"
        out, err = await say(house, "webhooks", "list", "--state", "pending")
        assert (nobody in out, err) == (True, "")


async def test_a_job_is_started_with_attributes(say: Say) -> None:
    blueprint = StateMachineBlueprint("quick", search_attributes={"Kind": "Keyword", "Size": "Int"})
    blueprint.handler_for("start", is_start=True, targets=["done"])(at_once)
    blueprint.handler_for("done", is_end=True)(lambda context, actions: None)
    async with serving(blueprint) as house:
        job_id = (
            await say(house, "jobs", "run", "quick", "--attribute", "Kind=video", "--attribute", "Size=7")
        )[0].strip()
        told = json.loads((await say(house, "jobs", "show", job_id, "--json"))[0])
        assert told["search_attributes"] == {"Kind": "video", "Size": 7}
        _, err = await say(house, "jobs", "run", "quick", "--attribute", "Kind", code=2)
        assert "expected NAME=VALUE" in err
        _, err = await say(house, "jobs", "run", "quick", "--webhook", "nowhere", code=1)
        assert "webhook_url: expected an http or https URL" in err


async def test_files_are_not_overwritten_and_go_wherever_they_are_sent(say: Say, tmp_path: Path) -> None:
    async with serving(asks(), payloads=f"file:{tmp_path / 'payloads'}") as house:
        job_id = (await say(house, "jobs", "run", "asks"))[0].strip()
        (tmp_path / "a.txt").write_text("mine")
        await say(house, "jobs", "files", job_id, "--put", "a.txt")
        (tmp_path / "a.txt").write_text("another")

        get = ("jobs", "files", job_id, "--get", "a.txt")
        assert "--force replaces it" in (await say(house, *get, code=2))[1]
        assert (tmp_path / "a.txt").read_text() == "another"
        assert await say(house, *get, "-o", "-") == ("mine", "")
        _, err = await say(house, *get, "-o", "no/such/place", code=2)
        assert "cannot write no/such/place: No such file or directory" in err
        await say(house, *get, "--force")
        assert (tmp_path / "a.txt").read_text() == "mine"

        _, err = await say(house, "jobs", "files", job_id, "--put", "a.txt", "--name", "../b", code=1)
        assert "expected the name of a file of this job, like frames/001.png, got '../b'" in err
        await say(house, "jobs", "approve", job_id, "--decision", "yes")
        _, err = await say(house, "jobs", "files", job_id)
        assert "the job has ended, and its files went with it" in err


async def test_a_value_that_is_too_large_to_be_shown_is_written_whole(say: Say, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text(json.dumps({"text": BIG}))
    async with serving(
        script(at_once, "done", name="quick"), payloads=f"file:{tmp_path / 'payloads'}"
    ) as house:
        job_id = (await say(house, "jobs", "run", "quick", "--input", "@input.json"))[0].strip()
        out, err = await say(house, "jobs", "show", job_id)
        assert "$offloaded" in out
        assert f"`regista jobs show {job_id} --value " in err
        sha256 = err.split("--value ")[1].split("`")[0]
        assert BIG in (await say(house, "jobs", "show", job_id, "--value", sha256))[0]
