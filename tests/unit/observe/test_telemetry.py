import asyncio
from typing import Any

import pytest

from regista import OrchestratorEngine, trace_context
from regista.clock import SystemClock
from regista.config import Config
from regista.errors import ConfigError
from regista.observe.telemetry import Telemetry, started_line
from regista.testing.clock import Clock
from regista.webhooks.base import DeliveryResult
from tests.otlp_receiver import Receiver
from tests.prometheus_text import parse, value
from tests.support import script


def telemetry(clock: Any = None, present: bool | None = None, **settings: Any) -> Telemetry:
    return Telemetry(Config(instance_id="one", **settings), clock or SystemClock(), present)


def test_commits_are_counted_only_with_the_extra_and_where_it_is_not_switched_off() -> None:
    assert telemetry(present=True).counts
    assert not telemetry(otel_disabled=True).counts


def page_of(telemetry: Telemetry) -> str:
    return asyncio.run(telemetry.prometheus_page()).decode()


def test_a_receiver_without_the_extra_stops_the_start_and_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"regista\[telemetry\]"):
        telemetry(present=False, otlp_endpoint="http://127.0.0.1:4318")


def test_a_sample_becomes_gauges_and_what_is_gone_is_gone() -> None:
    told = telemetry()
    told.record_sample(store_up=True, workers=2, queues={"a": (3, 40.0), "b": (1, 2.0)}, history_up=True)
    told.record_sample(store_up=True, workers=1, queues={"a": (1, 50.0)}, history_up=True, history_entries=7)

    page = parse(page_of(told))

    assert value(page, "orchestrator_task_queue_length") == 1
    assert value(page, "orchestrator_task_queue_oldest_seconds", queue="a") == 50
    assert value(page, "orchestrator_active_workers") == 1
    assert value(page, "orchestrator_history_lag_entries") == 7


def test_the_page_says_what_runs_and_how_it_is() -> None:
    told = telemetry()
    told.set_facts(started=True)

    page = parse(page_of(told))

    assert value(page, "orchestrator_info", instance="one", store="memory") == 1
    assert value(page, "orchestrator_system_state", state="ready") == 1
    assert value(page, "orchestrator_system_state") == 1


def test_counters_of_a_known_blueprint_begin_at_zero() -> None:
    told = telemetry()
    told.expect("b")

    page = parse(page_of(told))

    assert page["orchestrator_jobs_ended_total"][("blueprint", "b"), ("status", "quarantined")] == 0


def test_a_store_that_stays_away_is_critical_in_the_end() -> None:
    clock = Clock()
    told = telemetry(clock)
    told.set_facts(started=True)
    told.record_sample(store_up=False)
    first = told.health
    clock.move(31)
    told.record_sample(store_up=False)

    assert (first.state, told.health.state) == ("degraded", "critical")
    told.record_sample(store_up=True)
    assert told.health.state == "ready"


def test_the_first_line_names_store_history_and_instance_and_no_password() -> None:
    config = Config(
        instance_id="one",
        storage="redis://user:hush@host:6379/0",
        history_database_uri="postgresql://me:hush@db/regista",
    )

    line = started_line(config, "PostgresHistory")

    assert line == "store redis://***@host:6379/0, history postgresql://***@db/regista, instance one"
    assert started_line(Config(instance_id="x"), "MemoryHistory") == (
        "store memory, history in memory, instance x"
    )
    assert "history none" in started_line(Config(), "NoHistory")
    assert "history beside the store" in started_line(Config(), "SqliteHistory")


async def test_a_submission_from_the_program_itself_is_the_root_of_its_trace() -> None:
    with Receiver() as receiver:
        config = Config(otlp_endpoint=receiver.url, otlp_metrics_endpoint=f"{receiver.url}/v1/metrics")
        director = OrchestratorEngine("memory", config)
        director.register_blueprint(script(lambda context, actions: actions.transition_to("done"), "done"))
        async with director:
            await director.run_job("script")
        assert trace_context.tracer_provider() is None
        first = len(receiver.spans)
        async with director:  # an orchestrator that is started again traces again
            await director.run_job("script")
        assert len(receiver.spans) == 2 * first

    names = {span.span_id: span.name for span in receiver.spans}
    above = {span.name: names.get(span.parent_id, "") for span in receiver.spans}
    assert above == {
        "submit script": "",
        "job script": "submit script",
        "handler start": "job script",
        "handler done": "job script",
    }
    assert "orchestrator_jobs_total" in receiver.metrics


async def test_a_job_that_a_handler_submits_belongs_to_the_trace_of_its_job() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    found: list[str] = []
    async with OrchestratorEngine("memory", Config()) as director:

        async def start(context: Any, actions: Any) -> None:
            found.append(await director.create_background_job("other"))
            actions.transition_to("done")

        director.register_blueprint(script(start, "done"))
        director.register_blueprint(
            script(lambda context, actions: actions.transition_to("done"), "done", name="other")
        )
        job = await director.run_job("script", tracing_context={"traceparent": parent})
        other = await director.wait(found[0])

    assert other.tracing_context == job.trace
    assert other.tracing_context["traceparent"].split("-")[1] == "a" * 32


def test_attempts_to_deliver_are_counted_by_their_outcome() -> None:
    metrics = telemetry()
    for result in (
        DeliveryResult(status=204),
        DeliveryResult(error="no answer"),
        DeliveryResult(status=503, error="answered 503"),
        DeliveryResult(status=410, error="answered 410", final=True),
    ):
        metrics.webhook_attempt(result)

    assert metrics.metrics.webhooks.values == {("heard",): 1, ("not_heard",): 2, ("refused",): 1}
