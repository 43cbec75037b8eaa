"""Filing: what an orchestrator has with a payload store, and that it has nothing without one."""

import asyncio
from pathlib import Path

import pytest

from regista import (
    Config,
    JobContext,
    MemoryStorage,
    OrchestratorEngine,
    StateMachineBlueprint,
    TaskFiles,
)
from regista.blueprint import ActionFactory
from regista.clock import SystemClock
from regista.errors import ConfigError, PayloadsDisabled, PayloadUnavailable
from regista.filing import Filing
from regista.payloads.links import PATH


def test_without_a_payload_store_nothing_stands_before_the_store() -> None:
    storage = MemoryStorage(SystemClock())
    filing = Filing(Config(), storage, SystemClock())

    assert filing.records is None
    assert filing.chores == []
    assert filing.files is None
    with pytest.raises(PayloadsDisabled):
        filing.open("j1")
    with pytest.raises(PayloadsDisabled):
        asyncio.run(filing.value("j1", "0"))


def test_links_lead_to_where_people_reach_us(tmp_path: Path) -> None:
    async def play(public_url: str) -> str:
        config = Config(payloads=f"file:{tmp_path}", public_url=public_url)
        async with OrchestratorEngine("memory", config) as engine:
            return await engine.filing.open("j1").generate_presigned_url("a b.txt")

    assert asyncio.run(play("https://jobs.example.com/")).startswith(
        f"https://jobs.example.com{PATH}/j1/a%20b.txt?"
    )
    assert asyncio.run(play("")).startswith(f"{PATH}/j1/a%20b.txt?")


async def test_a_payload_store_that_is_away_stops_the_start_and_leaves_nothing_open() -> None:
    config = Config(s3_endpoint_url="http://127.0.0.1:9", s3_access_key="k", s3_secret_key="s")
    engine = OrchestratorEngine("memory", config)
    with pytest.raises(PayloadUnavailable, match="regista-payloads"):
        await engine.start()


async def test_two_who_share_a_store_sign_alike(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'jobs.db'}"
    config = Config(payloads=f"file:{tmp_path / 'payloads'}")
    secrets = set()
    for _ in range(2):
        async with OrchestratorEngine(storage, config) as engine:
            secrets.add(engine.filing.secret)
    assert len(secrets) == 1
    assert len(secrets.pop()) == 32


def test_a_wrong_setting_is_told_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError, match="s3_max_concurrency: expected a whole number, 1 or more, got 0"):
        Config(s3_max_concurrency=0)


def test_the_files_of_a_job_that_has_just_ended_go_with_the_stop(tmp_path: Path) -> None:
    blueprint = StateMachineBlueprint("files")

    @blueprint.handler_for("start", is_start=True, is_end=True)
    async def start(context: JobContext, actions: ActionFactory, task_files: TaskFiles) -> None:
        await task_files.write_text("a.txt", "a")
        actions.set_result("done")

    async def play() -> None:
        engine = OrchestratorEngine("memory", Config(payloads=f"file:{tmp_path}"))
        engine.register_blueprint(blueprint)
        async with engine:
            job = await engine.run_job("files", {}, 5)
            assert job.result == "done", job.error

    asyncio.run(play())

    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["regista-owner"]


def test_it_says_which_payload_store_it_uses_from_its_start_to_its_stop(tmp_path: Path) -> None:
    async def play() -> None:
        engine = OrchestratorEngine("memory", Config(payloads=f"file:{tmp_path}"))
        async with engine:
            owner = await engine.workers.cluster_id()
            assert engine.filing.place == {"uri": tmp_path.as_uri(), "owner": owner}
        assert not engine.filing.place

    asyncio.run(play())
    assert (tmp_path / "regista-owner").read_text()
