"""One handler, run once: whatever it does becomes a value. DESIGN 5; FENCES 18."""

import asyncio
import hmac
import inspect
import logging
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regista import ClientConfig, Config, JobStatus, MemoryStorage, OrchestratorEngine, StateMachineBlueprint
from regista.blueprint import ActionFactory, JobContext
from regista.blueprint.source_analysis import may_suspend
from regista.engines.approval_tokens import ApprovalTokens, approval_token
from regista.engines.handler_runner import HandlerRunner
from regista.model import Job
from regista.testing.clock import BEGINNING, Clock
from regista.testing.orchestrator import TestOrchestrator
from tests.support import fault, script


def go_on(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


async def go_on_without_awaiting(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


async def go_on_later(context: JobContext, actions: ActionFactory) -> None:
    await asyncio.sleep(3)
    actions.transition_to("done")


class Callable_:
    async def __call__(self, context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(1)
        actions.transition_to("done")

    def method(self, context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done")


def partly(to: str, context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to(to)


def wrapper(context: JobContext, actions: ActionFactory) -> Any:
    return go_on_later(context, actions)


@pytest.mark.parametrize(
    "handler",
    [
        go_on,
        go_on_without_awaiting,
        go_on_later,
        Callable_(),
        Callable_().method,
        partial(partly, "done"),
        wrapper,
    ],
)
def test_a_handler_may_be_sync_async_a_method_an_object_or_a_wrapper(handler: Any) -> None:
    with TestOrchestrator(script(handler, "done")) as kit:
        assert kit.run("script").status is JobStatus.FINISHED


if sys.version_info >= (3, 12):

    def test_a_plain_function_that_is_marked_as_async_is_awaited() -> None:
        marked = inspect.markcoroutinefunction(lambda context, actions: go_on_later(context, actions))
        with TestOrchestrator(script(marked, "done")) as kit:
            assert kit.run("script").status is JobStatus.FINISHED


def test_a_handler_that_suspends_although_its_source_does_not_show_it_runs_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    ran = "async def handler(context, actions):\n    await asyncio.sleep(3)\n    actions.transition_to('done')\n"
    file.write_text(ran.replace("await asyncio.sleep(3)", "pass"))
    names: dict[str, Any] = {"asyncio": asyncio}
    exec(compile(ran, str(file), "exec"), names)
    assert not may_suspend(names["handler"])
    with TestOrchestrator(script(names["handler"], "done")) as kit:
        assert kit.run("script").status is JobStatus.FINISHED


def test_a_blocking_handler_works_and_sees_the_same_context() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["seen"] = context.initial_data["n"]
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done", blocking=True)) as kit:
        assert kit.run("script", {"n": 3}).data == {"seen": 3}


async def test_blocking_handlers_leave_the_pool_of_the_event_loop_free() -> None:
    release = threading.Event()

    def start(context: JobContext, actions: ActionFactory) -> None:
        release.wait(30)
        actions.transition_to("done")

    director = OrchestratorEngine("memory", Config(blocking_handler_threads=64))
    director.register_blueprint(script(start, "done", blocking=True))
    async with director:
        jobs = [await director.submit("script") for _ in range(40)]  # the loop's pool has at most 32 threads
        try:
            await asyncio.wait_for(asyncio.to_thread(int), 5)
        finally:
            release.set()
        for job in jobs:
            assert (await director.wait(job.id, 10)).status is JobStatus.FINISHED


async def test_at_most_as_many_blocking_handlers_run_at_once_as_the_setting_says() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def start(context: JobContext, actions: ActionFactory) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        actions.transition_to("done")

    director = OrchestratorEngine("memory", Config(blocking_handler_threads=2))
    director.register_blueprint(script(start, "done", blocking=True))
    async with director:
        jobs = await asyncio.gather(*(director.submit("script") for _ in range(6)))
        for job in jobs:
            assert (await director.wait(job.id, 10)).status is JobStatus.FINISHED
    assert most == 2


def test_a_blocking_handler_that_raises_is_run_again() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        if context.attempt < 3:
            raise OSError("the share is not mounted")
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done", blocking=True)) as kit:
        assert kit.run("script").status is JobStatus.FINISHED


class Odd:
    pass


@pytest.mark.parametrize(
    "spoil",
    [
        lambda context, actions: context.state_history.update(odd=Odd()),
        lambda context, actions: context.state_history.update(loop=context.state_history),
        lambda context, actions: context.state_history.update(big=2**70),
        lambda context, actions: actions.set_result(Odd()),
    ],
)
@pytest.mark.parametrize("suspends", [True, False])
def test_what_no_store_can_keep_quarantines_at_once_and_says_so(spoil: Any, suspends: bool) -> None:
    runs: list[int] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(1)
        spoil(context, actions)
        actions.transition_to("done")

    async def start_slowly(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(1)
        start(context, actions)

    with TestOrchestrator(script(start_slowly if suspends else start, "done")) as kit:
        job = kit.run("script")
        assert (job.status, fault(job), len(runs)) == (JobStatus.QUARANTINED, "unstorable", 1)
        assert "plain data" in str(job.error)
        assert job.data == {}


def test_params_that_no_store_can_keep_quarantine_too() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {"odd": Odd()}, transitions={"success": "done"})

    with TestOrchestrator(script(start, "done")) as kit:
        assert fault(kit.run("script")) == "unstorable"


def test_what_a_handler_keeps_is_a_copy_that_nobody_can_change_afterwards() -> None:
    kept: list[dict[str, Any]] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        inner = {"n": 1}
        kept.append(inner)
        context.state_history["inner"] = inner
        actions.sleep(1, then="more")

    def more(context: JobContext, actions: ActionFactory) -> None:
        kept[0]["n"] = 99
        actions.transition_to("done")

    with TestOrchestrator(script(start, "done", more=more)) as kit:
        assert kit.run("script").data == {"inner": {"n": 1}}


def test_the_context_tells_what_the_job_is() -> None:
    seen: dict[str, Any] = {}

    def start(context: JobContext, actions: ActionFactory) -> None:
        seen.update(
            client=(context.client.name, context.client.params),
            blueprint=context.blueprint,
            state=context.current_state,
            visit=context.visit,
            webhook=context.webhook_url,
            tracing=context.tracing_context,
            attributes=context.search_attributes,
            parent=context.parent_id,
        )
        actions.transition_to("done")

    clients = {"acme": ClientConfig(name="acme", params={"tier": "gold"})}
    with TestOrchestrator(script(start, "done"), clients=clients) as kit:
        kit.run(
            "script",
            client="acme",
            webhook_url="https://example.com",
            tracing_context={"traceparent": "00-1"},
            search_attributes={"Kind": "x"},
        )
    assert seen == {
        "client": ("acme", {"tier": "gold"}),
        "blueprint": "script",
        "state": "start",
        "visit": 1,
        "webhook": "https://example.com",
        "tracing": {"traceparent": "00-1"},
        "attributes": {"Kind": "x"},
        "parent": None,
    }


def test_the_approval_token_is_the_same_when_the_handler_is_run_again_and_another_at_another_visit() -> None:
    tokens: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        tokens.append(actions.await_human_approval("ok?", transitions={"again": "start", "yes": "done"}))
        if context.attempt < 3:
            raise RuntimeError("the mail server is down")

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.run("script")
        assert len(tokens) == 3
        assert len(set(tokens)) == 1
        assert kit.director.engine.approval_token(job) == tokens[0]
        kit.crash()  # the secret survives
        assert kit.director.engine.approval_token(job) == tokens[0]
        kit.approve(job, "again")
        assert tokens[3] != tokens[0]


def test_the_approval_token_is_an_hmac_of_job_state_and_visit() -> None:
    job = Job(
        id="j", blueprint="b", version="v", state="s", visit=3, created_at=BEGINNING, updated_at=BEGINNING
    )
    assert approval_token(b"secret", job) == hmac.digest(b"secret", b"j\ns\n3", "sha256").hex()


def test_a_handler_that_holds_the_loop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("start", is_start=True)
    def hog(context: JobContext, actions: ActionFactory) -> None:
        clock.move(0.06)
        time.sleep(0.06)  # whichever clock is read
        actions.transition_to("done")

    blueprint.handler_for("done", is_end=True)(go_on)
    job = Job(
        id="j", blueprint="script", version="v", state="start", created_at=BEGINNING, updated_at=BEGINNING
    )
    with caplog.at_level(logging.WARNING, "regista.engine"):
        HandlerRunner(clock, {}, ApprovalTokens(MemoryStorage(clock))).run(
            blueprint, blueprint.graph, job, None
        )
    assert "hog" in caplog.text
    assert "'start'" in caplog.text
    assert "blocking=True" in caplog.text


def test_a_wish_against_the_rules_names_its_state_once_and_no_class() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to(str(context.initial_data["to"]))

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.run("script", {"to": "nowhere"})
        assert job.error is not None
        assert job.error.message.startswith("state 'start': transition_to: there is no state 'nowhere'")
        assert "ActionError" not in job.error.message
        assert job.error.message.count("state 'start'") == 1
        durations = [event.duration_ms for event in kit.events(job) if event.duration_ms is not None]
        assert durations == [round(one, 3) for one in durations]
