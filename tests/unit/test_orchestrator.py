"""Submitting, versions and the life of the orchestrator. FENCES 17, 20."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from regista import (
    Config,
    EventType,
    Job,
    JobNotFound,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    SqliteStorage,
    StateMachineBlueprint,
    Worker,
)
from regista.backends import build_history, build_storage
from regista.blueprint import ActionFactory, JobContext
from regista.dispatch.connected import CallbackConnection
from regista.engines.base import Submission
from regista.errors import (
    BlueprintInvalid,
    BlueprintNotFound,
    ConfigError,
    IdempotencyConflict,
    StorageFailed,
)
from regista.history.postgres import PostgresHistory
from regista.history.sqlite import SqliteHistory
from regista.model import AwaitVersion, ClientConfig, ResultVerdict, Task, TaskResult
from regista.model import Worker as WorkerRecord
from regista.sdk.local import LocalWorker
from regista.storage.base import StorageBackend
from regista.testing.clock import LoopClock
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, Shared, answer, one_task, script, types

# -- submitting (FENCES 17) ------------------------------------------------------------------------


def test_an_unknown_blueprint_is_refused_and_the_known_ones_are_named() -> None:
    with TestOrchestrator(one_task()) as kit, pytest.raises(BlueprintNotFound, match="registered: script"):
        kit.submit("scirpt")


def test_an_invalid_blueprint_is_refused_at_registration() -> None:
    with TestOrchestrator() as kit, pytest.raises(BlueprintInvalid):
        kit.director.register_blueprint(StateMachineBlueprint("empty"))


def test_input_that_no_store_can_keep_is_refused_and_nothing_is_stored() -> None:
    with TestOrchestrator(one_task()) as kit:
        for odd in ({"odd": object()}, {"big": 2**70}):
            with pytest.raises(ValueError, match="plain data"):
                kit.submit("script", odd)
        assert kit.jobs() == []


def test_an_acknowledged_submission_survives_a_power_cut() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script", {"n": 1})
        kit.crash()
        kept = kit.get(job)
        assert (kept.input, kept.status) == ({"n": 1}, JobStatus.WAITING_FOR_WORKER)


def test_the_same_key_and_body_return_the_same_job_also_after_it_ended_and_after_a_restart() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        first = kit.submit("script", {"n": 1}, idempotency_key="k")
        assert kit.submit("script", {"n": 1}, idempotency_key="k").id == first.id
        assert kit.wait(first).status is JobStatus.FINISHED
        replayed = kit.submit("script", {"n": 1}, idempotency_key="k")
        assert (replayed.id, replayed.status) == (first.id, JobStatus.FINISHED)
        kit.crash()
        assert kit.submit("script", {"n": 1}, idempotency_key="k").id == first.id
        assert types(kit.events(first)).count("job_created") == 1


def test_the_same_key_with_another_body_is_a_conflict_also_after_a_restart() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.submit("script", {"n": 1}, idempotency_key="k")
        for _ in range(2):
            with pytest.raises(IdempotencyConflict):
                kit.submit("script", {"n": 2}, idempotency_key="k")
            kit.crash()


def test_the_same_key_of_another_client_is_another_job() -> None:
    with TestOrchestrator(one_task()) as kit:
        ours = kit.submit("script", {"n": 1}, idempotency_key="k", client="us")
        theirs = kit.submit("script", {"n": 2}, idempotency_key="k", client="them")
        assert ours.id != theirs.id


def test_the_same_key_twice_at_once_is_one_job() -> None:
    with TestOrchestrator(one_task()) as kit:

        async def both() -> list[Job]:
            ask = kit.director.submit
            return await asyncio.gather(*(ask("script", {"n": 1}, idempotency_key="k") for _ in range(5)))

        assert len({job.id for job in kit.call(both)}) == 1
        assert len(kit.jobs()) == 1


def test_a_batch_is_one_flush_and_answers_per_item() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: {"n": params["n"]})
        kit.skip(0)
        before = kit.writes
        wishes = [Submission(blueprint="script", input={"n": n}, idempotency_key=f"k{n}") for n in range(50)]
        wishes.append(wishes[0])
        answers = kit.call(lambda: kit.director.submit_many(wishes))
        jobs = [answer for answer in answers if isinstance(answer, Job)]
        assert kit.writes - before <= 2  # the batch itself; its handlers may already share the next one
        assert jobs[-1].id == jobs[0].id
        assert [kit.wait(job).data["n"] for job in jobs[:50]] == list(range(50))


def test_a_batch_with_one_wrong_item_writes_nothing() -> None:
    with TestOrchestrator(one_task()) as kit:
        wishes = [Submission(blueprint="script"), Submission(blueprint="nobody")]
        with pytest.raises(BlueprintNotFound):
            kit.call(lambda: kit.director.submit_many(wishes))
        assert kit.jobs() == []


def test_a_batch_with_a_conflict_answers_the_other_items() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.submit("script", {"n": 1}, idempotency_key="k")
        wishes = [
            Submission(blueprint="script", input={"n": 2}, idempotency_key="k"),
            Submission(blueprint="script", input={"n": 3}),
        ]
        conflict, job = kit.call(lambda: kit.director.submit_many(wishes))
        assert isinstance(conflict, IdempotencyConflict)
        assert isinstance(job, Job)
        assert job.input == {"n": 3}


def test_jobs_can_be_started_from_inside() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        job_id = kit.call(lambda: kit.director.create_background_job("script", {"n": 1}, source="cron"))
        assert kit.wait(job_id).client == "cron"
        assert kit.call(lambda: kit.director.run_job("script")).status is JobStatus.FINISHED


def test_nobody_knows_a_job_that_never_was() -> None:
    with TestOrchestrator(one_task()) as kit:
        for ask in (kit.get, kit.cancel, kit.wait):
            with pytest.raises(JobNotFound):
                ask("nobody")


# -- versions (FENCES 20) --------------------------------------------------------------------------


def version(extra: str | None = None, state: str = "middle") -> StateMachineBlueprint:
    """A job that waits for the task "work" in `state`; `extra` is one more state, so another version."""
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("start", is_start=True, targets=[state])
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to(state)

    @blueprint.handler_for(state, targets=["check", *([extra] if extra else [])])
    def middle(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "check"})

    @blueprint.handler_for("check", targets=["done"])
    def check(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["checked_by"] = extra or "first"
        actions.transition_to("done")

    if extra:
        blueprint.handler_for(extra, is_end=True)(answer)
    blueprint.handler_for("done", is_end=True)(answer)
    return blueprint


def test_a_job_stays_with_the_version_it_was_born_with_while_somebody_has_it() -> None:
    old, new = version(), version("extra")
    assert old.version != new.version
    with TestOrchestrator(old) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        kit.register(new)
        fresh = kit.submit("script")
        puppet.settle()
        for task in puppet.tasks:
            puppet.finish(task)
        assert kit.get(job).data == {"checked_by": "first"}
        assert kit.get(fresh).data == {"checked_by": "extra"}


def test_a_result_on_an_instance_without_the_version_is_kept_without_the_handler() -> None:
    old, new = version(), version("extra")
    with TestOrchestrator(old) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.forget(old)
        kit.crash()
        puppet.join(task.attempt_id)
        # when: nobody has any version
        assert puppet.finish(task, {"n": 1}) is ResultVerdict.ACCEPTED
        kept = kit.get(job)
        assert (kept.state, kept.data, kept.status) == ("check", {"n": 1}, JobStatus.RUNNING)
        # then: it goes on with the newest as soon as there is one that knows its state
        kit.register(new)
        after = kit.wait(job)
        assert after.data == {"n": 1, "checked_by": "extra"}
        assert (after.version, types(kit.events(job)).count("job_migrated")) == (new.version, 1)


def test_a_version_that_nobody_has_and_nobody_can_take_over_is_named() -> None:
    old, new = version(), version("extra", state="elsewhere")
    stuck = script(lambda context, actions: actions.sleep(10, then="middle"), "done", middle=answer_later)
    with TestOrchestrator(stuck) as kit:
        job = kit.submit("script")
        kit.forget(stuck)
        kit.register(new)
        kit.crash()
        kit.skip(60)
        waiting = kit.get(job)
        assert isinstance(waiting.wait, AwaitVersion)
        assert (waiting.wait.reason, waiting.wait.version) == ("blueprint_version_missing", stuck.version)
        # and it is picked up again when the version comes back
        kit.register(stuck)
        assert kit.wait(job).status is JobStatus.FINISHED
        assert old.version != stuck.version


def answer_later(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


def test_a_timer_of_a_job_without_its_version_still_rings() -> None:
    blueprint = script(lambda context, actions: actions.sleep(10, then="done"), "done")
    with TestOrchestrator(blueprint) as kit:
        job = kit.submit("script")
        kit.forget(blueprint)
        kit.crash()
        kit.skip(11)
        assert kit.get(job).state == "done"
        kit.register(blueprint)
        assert kit.wait(job).status is JobStatus.FINISHED


def test_an_unknown_status_on_an_instance_without_the_version_finds_the_state_failed() -> None:
    blueprint = one_task("done", "failed")
    with TestOrchestrator(blueprint) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.forget(blueprint)
        kit.crash()
        puppet.join(task.attempt_id)
        puppet.finish(task, status="sideways")
        assert kit.get(job).state == "failed"
        kit.register(blueprint)
        assert kit.wait(job).status is JobStatus.FAILED


def test_an_instance_claims_only_what_it_has_loaded_and_leaves_the_rest_to_who_has_it() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    storage = MemoryStorage(clock, SimulatedDisk())
    old, new = version(), version("extra")

    async def main() -> list[Job]:
        await storage.start()
        first, second = (
            OrchestratorEngine(cast(StorageBackend, Shared(storage)), Config(instance_id=name), clock=clock)
            for name in ("first", "second")
        )
        first.register_blueprint(old)
        second.register_blueprint(new)
        await first.start()
        await second.start()
        tasks: list[Task] = []
        # given: a worker that is connected to the instance with the new version only
        record = WorkerRecord(id="w", skills=("work",))
        await second.workers.register(record, [], CallbackConnection(tasks.extend, lambda attempts: None))
        jobs = [await first.submit("script"), await second.submit("script")]
        await asyncio.sleep(3)
        # when: both results land there
        for task in tasks:
            result = TaskResult(task_id=task.attempt_id, job_id=task.job_id, worker_id="w")
            assert await second.workers.deliver(result) is ResultVerdict.ACCEPTED
        done = [await second.wait(job.id, 30) for job in jobs]
        await first.stop()
        await second.stop()
        await storage.stop()
        return done

    ours, theirs = loop.run_until_complete(main())
    loop.close()
    # then: each was played by the instance that has its version
    assert (ours.data, ours.version) == ({"checked_by": "first"}, old.version)
    assert (theirs.data, theirs.version) == ({"checked_by": "extra"}, new.version)


# -- life ------------------------------------------------------------------------------------------------


def played(main: Any, storage: MemoryStorage | None = None) -> None:
    """Run `main(director)` on a virtual loop, with the real upkeep and the real recorder."""
    loop = VirtualLoop()
    clock = LoopClock(loop)

    async def run() -> None:
        director = OrchestratorEngine(storage or MemoryStorage(clock, SimulatedDisk()), clock=clock)
        await main(director)

    loop.run_until_complete(run())
    loop.close()


def test_the_engine_runs_a_job_with_its_own_upkeep_and_recorder() -> None:
    async def main(director: OrchestratorEngine) -> None:
        blueprint = script(lambda context, actions: actions.sleep(5, then="more"), "done", more=retried)
        director.register_blueprint(blueprint)
        async with director:
            job = await director.run_job("script")
            assert job.status is JobStatus.FINISHED
            await asyncio.sleep(3)
            told = await director.history.events(job.id)
            assert [event.seq for event in told] == list(range(1, len(told) + 1))
            assert told[-1].type is EventType.JOB_FINISHED

    played(main)


def retried(context: JobContext, actions: ActionFactory) -> None:
    if context.attempt == 1:
        raise RuntimeError("once")
    actions.transition_to("done")


def test_start_and_stop_twice_are_fine_and_so_is_stop_before_start() -> None:
    async def main(director: OrchestratorEngine) -> None:
        await director.stop()
        await director.start()
        await director.start()
        await director.stop()
        await director.stop()
        await director.wait_stopped()

    played(main)


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_a_cancelled_stop_is_completed_by_the_next_one(tmp_path: Path, turns: int) -> None:
    path = str(tmp_path / "jobs.db")
    engine = OrchestratorEngine(SqliteStorage(path), Config())
    await engine.start()

    stopping = asyncio.create_task(engine.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping
    await engine.stop()

    async with OrchestratorEngine(
        SqliteStorage(path), Config()
    ) as next_one:  # the file is closed and unlocked
        assert next_one.storage is not engine.storage


async def test_two_stops_at_once_both_return_when_everything_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    engine = OrchestratorEngine(SqliteStorage(path), Config())
    await engine.start()

    await asyncio.gather(engine.stop(), engine.stop())

    async with OrchestratorEngine(SqliteStorage(path), Config()):
        pass


async def test_workers_that_fail_to_start_later_are_logged_and_do_not_disturb_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: LocalWorker) -> None:
        raise RuntimeError("no such device")

    blueprint, broken, works = one_task(), Worker("broken"), Worker("works")
    works.task("work")(lambda params: {"n": 1})
    async with OrchestratorEngine(config=Config()) as engine:
        engine.register_blueprint(blueprint)
        with monkeypatch.context() as patch:
            patch.setattr(LocalWorker, "start", fails)
            engine.add_worker(broken)
            await asyncio.sleep(0.01)
        engine.add_worker(works)
        job = await engine.run_job("script", {}, timeout_s=5)

    assert job.status is JobStatus.FINISHED
    failures = [(record.name, record.levelname) for record in caplog.records if record.exc_info]
    assert failures == [("regista", "ERROR")]


async def test_serving_again_after_a_stop_reads_the_credential_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def read(path: str) -> dict[str, ClientConfig]:
        nonlocal reads
        reads += 1
        return {}

    monkeypatch.setattr("regista.config.credentials.read_clients", read)
    config = Config(
        clients_config_path=str(tmp_path / "clients.toml"), client_token="t" * 32, worker_token="w" * 32
    )
    (tmp_path / "clients.toml").touch()
    monkeypatch.setattr("regista.config.credentials.read_webhooks", lambda path, check: {})
    engine = OrchestratorEngine(config=config)
    for _ in range(3):
        await engine.serve("127.0.0.1", 0)
        await engine.stop()
    await engine.serve("127.0.0.1", 0)
    reads = 0

    assert engine.reload()

    assert reads == 1
    await engine.stop()


def test_what_is_unfinished_at_stop_goes_on_with_the_next_start() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    disk = SimulatedDisk()
    blueprint = script(lambda context, actions: actions.sleep(100, then="done"), "done")

    async def first() -> str:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(blueprint)
        async with director:
            return (await director.submit("script")).id

    async def second(job_id: str) -> Job:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(blueprint)
        async with director:
            return await director.wait(job_id)

    job_id = loop.run_until_complete(first())
    assert loop.run_until_complete(second(job_id)).status is JobStatus.FINISHED
    loop.close()


def test_a_failed_flush_is_final_and_stops_the_orchestrator_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    loop = VirtualLoop()
    clock = LoopClock(loop)

    async def main() -> None:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(one_task())
        await director.start()
        asking = asyncio.ensure_future(director.submit("script"))
        await asyncio.sleep(0.0001)
        disk.pull_the_plug()
        with pytest.raises(StorageFailed):
            await asking
        with pytest.raises(StorageFailed):
            await director.wait_stopped()

    with caplog.at_level(logging.CRITICAL):
        loop.run_until_complete(main())
    loop.close()
    assert "storage failed, stopping" in caplog.text


def test_two_workers_of_one_name_are_refused() -> None:
    async def main(director: OrchestratorEngine) -> None:
        director.add_worker(Worker("twin"))
        with pytest.raises(ValueError, match="twin"):
            director.add_worker(Worker("twin"))

    played(main)


def test_blueprints_are_loaded_from_their_directory(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(
        "from regista import StateMachineBlueprint\n"
        "hello = StateMachineBlueprint('hello')\n"
        "@hello.handler_for('start', is_start=True, is_end=True)\n"
        "def start(context, actions):\n"
        "    actions.set_result('hi')\n"
    )
    config = Config(instance_id="test", blueprints_dir=str(tmp_path))
    with TestOrchestrator(config=config) as kit:
        assert kit.run("hello").result == "hi"


def test_the_store_and_the_history_follow_their_settings(tmp_path: Path) -> None:
    clock = LoopClock(VirtualLoop())
    clock._loop.close()
    assert type(build_storage("memory", clock)) is MemoryStorage
    sqlite = build_storage(f"sqlite:{tmp_path}/jobs.db", clock)
    assert isinstance(sqlite, SqliteStorage)
    beside = build_history("", sqlite)
    assert isinstance(beside, SqliteHistory)
    for wrong in ("redis", "memory:x", "sqlite:"):
        with pytest.raises(ConfigError):
            build_storage(wrong, clock)
    for uri in ("postgresql://regista@db/jobs", "postgres://db/jobs"):
        assert isinstance(build_history(uri, sqlite), PostgresHistory)
    with pytest.raises(ConfigError, match="sqlite:PATH or postgresql://HOST/DATABASE"):
        build_history("postgres:x", sqlite)


def test_a_history_on_postgresql_without_its_extra_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "regista.history.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"pip install 'regista\[postgres\]'.*no module named asyncpg"):
        build_history("postgresql://db/jobs", MemoryStorage())


def test_on_a_shared_store_two_of_one_machine_have_different_names() -> None:
    class Shared(MemoryStorage):
        shared = True

    alone = OrchestratorEngine(MemoryStorage(), Config())
    shares = OrchestratorEngine(Shared(), Config())
    named = OrchestratorEngine(Shared(), Config(instance_id="a"))
    assert alone.config.instance_id == socket.gethostname()
    assert shares.config.instance_id == f"{socket.gethostname()}-{os.getpid()}"
    assert named.config.instance_id == "a"
