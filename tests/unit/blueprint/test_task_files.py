"""Handlers and files: by the context, or by an argument of that name."""

import functools
from typing import Any

import pytest

from regista import Config, JobContext, JobStatus, StateMachineBlueprint
from regista.blueprint import ActionFactory
from regista.engines.handler_runner import HandlerRunner
from regista.errors import BlueprintInvalid, PayloadsDisabled
from regista.payloads.task_files import TaskFiles
from regista.testing.orchestrator import TestOrchestrator
from tests.support import script


class Recorder:
    """Stands for the files of a job: only who asked matters here."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id


def run(blueprint: StateMachineBlueprint) -> Any:
    class RunnerWithFiles(HandlerRunner):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "files": Recorder})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regista.composition.HandlerRunner", RunnerWithFiles)
        with TestOrchestrator(blueprint) as kit:
            return kit.run(blueprint.name)


def test_a_handler_gets_the_files_by_an_argument_of_that_name() -> None:
    def start(context: JobContext, actions: ActionFactory, task_files: TaskFiles) -> None:
        context.state_history["of"] = task_files.job_id
        actions.transition_to("done")

    job = run(script(start, "done"))  # type: ignore[arg-type]

    assert job.status is JobStatus.FINISHED, job.error
    assert job.data["of"] == job.id


def test_an_async_handler_too_and_as_a_keyword() -> None:
    blueprint = StateMachineBlueprint("files")

    @blueprint.handler_for("start", is_start=True, is_end=True)
    async def start(context: JobContext, actions: ActionFactory, *, task_files: TaskFiles) -> None:
        actions.set_result([task_files.job_id, context.task_files.job_id])

    job = run(blueprint)

    assert job.result == [job.id, job.id]


def test_a_handler_without_them_is_called_as_ever() -> None:
    blueprint = StateMachineBlueprint("files")

    def start(extra: str, context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(extra)

    blueprint.handler_for("start", is_start=True, is_end=True)(functools.partial(start, "extra"))

    assert run(blueprint).result == "extra"


def test_any_other_third_argument_is_still_refused() -> None:
    blueprint = StateMachineBlueprint("files")

    @blueprint.handler_for("start", is_start=True, is_end=True)
    def start(context: JobContext, actions: ActionFactory, more: object) -> None: ...

    with pytest.raises(BlueprintInvalid, match="expected to be callable with"):
        blueprint.validate()


def test_without_a_payload_store_it_is_said_which_setting_names_one() -> None:
    told: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        try:
            _ = context.task_files
        except PayloadsDisabled as error:
            told.append(str(error))
        actions.transition_to("done")

    with TestOrchestrator() as kit:
        kit.register(script(start, "done"))
        kit.run("script")

    assert told == ["no payload store is configured; REGISTA_PAYLOADS (file:PATH, s3://BUCKET) names one"]


def test_a_blueprint_with_files_can_be_tested_in_virtual_time() -> None:
    blueprint = StateMachineBlueprint("files")

    @blueprint.handler_for("start", is_start=True)
    async def start(context: JobContext, actions: ActionFactory, task_files: TaskFiles) -> None:
        await task_files.write_json("a.json", {"n": 1})
        actions.sleep(86_400, then="done")

    @blueprint.handler_for("done", is_end=True)
    async def done(context: JobContext, actions: ActionFactory, task_files: TaskFiles) -> None:
        here = await task_files.download("a.json")
        actions.set_result([await task_files.read_json("a.json"), here.read_text()])

    with TestOrchestrator(config=Config(payloads="memory")) as kit:
        kit.register(blueprint)
        job = kit.run("files")
        assert job.result == [{"n": 1}, '{"n":1}']
