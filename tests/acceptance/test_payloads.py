"""Large values and files, from submission to the end of the job, on every store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regista import (
    Config,
    JobContext,
    JobStatus,
    OrchestratorEngine,
    PermanentError,
    StateMachineBlueprint,
    Worker,
)
from regista.blueprint import ActionFactory
from regista.payloads.task_files import TaskFiles
from regista.testing.conformance.storage.kit import shown
from tests.acceptance.any_store import history as history
from tests.acceptance.any_store import redis_server as redis_server
from tests.acceptance.any_store import storage as storage
from tests.acceptance.house import house, raw
from tests.s3_server import S3Server, rclone_binary
from tests.support import script

BIG = "x" * 300_000
HUGE = "y" * 3_000_000


def media() -> StateMachineBlueprint:
    """A handler writes a file, a worker reads it and writes another, a handler reads that."""
    media = StateMachineBlueprint("media")

    @media.handler_for("start", is_start=True)
    async def start(context: JobContext, actions: ActionFactory, task_files: TaskFiles) -> None:
        await task_files.write_text("in.txt", context.initial_data["text"])
        actions.dispatch_task(
            context.initial_data.get("skill", "shout"),
            {"name": "in.txt", "load": context.initial_data.get("load")},
            transitions={"success": "done"},
        )

    @media.handler_for("done", is_end=True)
    async def done(context: JobContext, actions: ActionFactory) -> None:
        out = await context.task_files.read_text("out.txt")
        load = context.state_history.get("load")
        actions.set_result({"out": out, "load": load})

    return media


def crew() -> Worker:
    worker = Worker("crew")

    @worker.task("shout")
    async def shout(params: dict[str, Any], files: TaskFiles) -> dict[str, Any]:
        source = await files.download(params["name"])
        files.path_to("out.txt").write_text(source.read_text().upper())
        await files.upload("out.txt")
        return {"load": params["load"], "local": str(files.path)}

    @worker.task("break")
    async def broken(params: dict[str, Any], files: TaskFiles) -> None:
        await files.write_text("half.txt", "half")
        raise PermanentError("a broken file")

    return worker


def director(storage: str, history: str, tmp_path: Path, **more: Any) -> OrchestratorEngine:
    settings = {
        "payloads": f"file:{tmp_path / 'payloads'}",
        "task_files_dir": str(tmp_path / "scratch"),
        **more,
    }
    engine = OrchestratorEngine(storage, Config(history_database_uri=history, **settings))
    engine.register_blueprint(media())
    engine.add_worker(crew())
    return engine


async def until(holds: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(8):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


def files_below(folder: Path) -> list[str]:
    return sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())


async def test_files_go_from_handler_to_worker_and_back_and_are_gone_with_the_job(
    storage: str, history: str, tmp_path: Path
) -> None:
    async with director(storage, history, tmp_path) as engine:
        job = await engine.run_job("media", {"text": "hello"}, 8)

        assert job.status is JobStatus.FINISHED, job.error
        assert job.result == {"out": "HELLO", "load": None}
        await until(lambda: files_below(tmp_path / "payloads" / "jobs") == [])
        await until(lambda: not Path(job.data["local"]).exists())
    assert [each for each in files_below(tmp_path / "scratch") if "lock" not in each] == []


async def test_a_large_value_is_seen_whole_and_stored_elsewhere(
    storage: str, history: str, tmp_path: Path
) -> None:
    async with director(storage, history, tmp_path) as engine:
        job = await engine.run_job("media", {"text": BIG, "load": {"deep": [HUGE]}}, 8)

        assert job.status is JobStatus.FINISHED, job.error
        assert job.input == {"text": BIG, "load": {"deep": [HUGE]}}
        assert job.result == {"out": BIG.upper(), "load": {"deep": [HUGE]}}
        stored = await shown(engine.storage, job.id)
        assert stored is not None
        assert len(repr(stored)) < 10_000
        kept = files_below(tmp_path / "payloads" / "records")
        # The same value is kept once, however often the record names it.
        assert len(kept) == 3
        events = await engine.events(job.id)
        assert len(repr(events)) < 20_000


async def test_a_quarantined_job_keeps_its_files_until_it_is_given_up(
    storage: str, history: str, tmp_path: Path
) -> None:
    async with director(storage, history, tmp_path) as engine:
        job = await engine.run_job("media", {"text": "hello", "skill": "break"}, 8)
        assert job.status is JobStatus.QUARANTINED
        for chore in engine.filing.chores:
            await chore.run_once(engine.clock.now())

        assert await (engine.filing.open(job.id)).exists("half.txt")

        await engine.fail(job.id, "nobody can mend it")
        await until(lambda: files_below(tmp_path / "payloads" / "jobs") == [])


async def test_a_value_that_is_not_what_was_written_quarantines_its_job_and_no_other(
    storage: str, history: str, tmp_path: Path
) -> None:
    engine = director(storage, history, tmp_path)
    waiting = StateMachineBlueprint("waiting")

    @waiting.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("go on?", {"approved": "done"})

    @waiting.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(len(context.initial_data["text"]))

    engine.register_blueprint(waiting)
    async with engine:
        hurt, well = [await engine.submit("waiting", {"text": BIG + name}) for name in ("1", "2")]
        (record,) = (tmp_path / "payloads" / "records" / hurt.id).iterdir()
        record.write_bytes(b"something else")
    async with director(storage, history, tmp_path) as engine:
        engine.register_blueprint(waiting)
        if storage == "memory":
            return  # nothing of it is left to be read
        for job in (hurt, well):
            await engine.approve(job.id, "approved")

        ended = await engine.wait(hurt.id, 8)
        assert ended.status is JobStatus.QUARANTINED
        assert ended.error is not None
        assert ended.error.code == "integrity_error"
        assert "expected the value with the checksum sha256:" in ended.error.message
        assert (await engine.wait(well.id, 8)).result == len(BIG) + 1


@pytest.mark.parametrize("limit", [0, 100])
async def test_the_threshold_is_a_setting(limit: int, tmp_path: Path) -> None:
    async with director("memory", "", tmp_path, offload_bytes=limit) as engine:
        job = await engine.run_job("media", {"text": "hello", "load": "z" * 200}, 8)

        assert job.result == {"out": "HELLO", "load": "z" * 200}
        assert bool(files_below(tmp_path / "payloads" / "records")) is bool(limit)


async def test_a_stock_worker_gets_large_params_as_if_nothing_had_happened(
    storage: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"payloads": f"file:{tmp_path / 'payloads'}"}
    async with house(storage, **settings) as here, raw(here) as worker:
        job_id = await here.submit("echo", text=BIG)  # nobody is there yet: it waits in the store
        assert len(repr(await here.task(job_id))) < 5_000
        await worker.register()

        task = await worker.poll()

        assert task["params"] == {"text": BIG}
        await worker.finish(task, {"echo": BIG.upper()})
        job = await here.director.wait(job_id, 8)
        assert job.result == {"echo": BIG.upper()}


async def test_a_task_whose_params_are_not_what_was_written_fails_for_good(
    storage: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"payloads": f"file:{tmp_path / 'payloads'}", "offload_bytes": 1000}
    async with house(storage, **settings) as here:
        job_id = await here.submit("echo", text="t" * 2000)
        for record in (tmp_path / "payloads" / "records" / job_id).iterdir():
            record.write_bytes(b"something else")
        forget(here.director)
        async with raw(here) as worker:
            await worker.register()

            assert await worker.poll(1.0) is None

        job = await here.director.engine.wait_one(job_id, 8)
        assert job.status is JobStatus.QUARANTINED
        assert job.error is not None
        assert job.error.code == "PERMANENT_ERROR"
        assert job.error.message.startswith("integrity_error: records/")


def forget(engine: OrchestratorEngine) -> None:
    """What an orchestrator has just written it knows by heart; another one would have to read it."""
    records = engine.filing.records
    assert records is not None
    records._offload._known.clear()


def test_branches_and_children_with_large_values_are_seen_whole(
    storage: str, history: str, tmp_path: Path
) -> None:
    family, child = StateMachineBlueprint("family"), StateMachineBlueprint("child")

    @family.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        for letter in "ab":
            actions.dispatch_task("repeat", {"text": letter * 300_000}, transitions={"success": "join"})

    @family.aggregator_for("join")
    def join(context: JobContext, actions: ActionFactory) -> None:
        texts = [each["data"]["text"] for each in context.aggregation_results.values()]
        assert [len(text) for text in texts] == [600_000, 600_000]
        actions.run_blueprint("child", {"text": "".join(texts)}, transitions={"finished": "done"})

    @family.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result({key: len(str(value)) for key, value in context.state_history.items()})

    @child.handler_for("start", is_start=True)
    def only(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("finished")

    @child.handler_for("finished", is_end=True)
    def finished(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result({"text": context.initial_data["text"] + "!"})

    async def play() -> None:
        engine = director(storage, history, tmp_path)
        engine.register_blueprint(family)
        engine.register_blueprint(child)
        worker = Worker("repeaters")

        @worker.task("repeat")
        async def repeat(text: str) -> dict[str, str]:
            return {"text": text * 2}

        engine.add_worker(worker)
        async with engine:
            job = await engine.run_job("family", {}, 8)

            assert job.status is JobStatus.FINISHED, job.error
            assert max(job.result.values()) >= 1_200_001

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_a_job_whose_value_is_away_waits_in_quarantine_and_goes_on_when_it_is_back() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("go on?", {"approve": "done"})

    async def play(server: S3Server) -> None:
        config = server.config(job_max_retries=1, handler_retry_first_s=0.05)
        engine = OrchestratorEngine("memory", config)
        engine.register_blueprint(script(start, "done", name="asks"))
        engine.register_blueprint(
            script(lambda _, actions: actions.transition_to("done"), "done", name="quick")
        )
        async with engine:
            job = await engine.submit("asks", {"text": BIG})
            forget(engine)
            server.stop()
            await engine.approve(job.id, "approve")

            assert (await engine.run_job("quick", {}, 8)).status is JobStatus.FINISHED  # others go on
            hurt = await engine.engine.wait_one(job.id, 20)
            assert hurt.status is JobStatus.QUARANTINED
            assert hurt.error is not None
            assert hurt.error.code == "payloads_unavailable"
            assert hurt.input["text"]["$offloaded"]["size"] > len(BIG)

            server.start()
            await engine.release(job.id)
            ended = await engine.wait(job.id, 8)
            assert (ended.status, ended.input) == (JobStatus.FINISHED, {"text": BIG})

    with S3Server(rclone_binary()) as server:
        asyncio.run(play(server))
