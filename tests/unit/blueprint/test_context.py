"""JobContext: what a handler sees of its job."""

from typing import Any

import pytest

from regista.blueprint.actions import ActionFactory
from regista.blueprint.context import JobContext
from regista.blueprint.datastore import DataStores
from regista.blueprint.graph import Graph
from regista.clock import SystemClock
from regista.errors import ActionError
from regista.model import ClientConfig, Job


def make(**more: Any) -> Job:
    now = SystemClock().now()
    return Job(id="j1", blueprint="b", version="v", state="work", created_at=now, updated_at=now, **more)


def test_the_context_shows_its_job() -> None:
    job = make(
        input={"a": 1},
        data={"b": 2},
        visit=3,
        handler_failures=1,
        parent_id="p",
        webhook_url="https://example.org",
        search_attributes={"kind": "x"},
        tracing_context={"traceparent": "00"},
    )
    client, stores = ClientConfig(plan="pro"), DataStores()
    context = JobContext(job, job.data, client, stores)
    assert (context.job_id, context.current_state, context.blueprint) == ("j1", "work", "b")
    assert (context.initial_data, context.state_history) == ({"a": 1}, {"b": 2})
    assert (context.visit, context.attempt, context.parent_id) == (3, 2, "p")
    assert context.webhook_url == "https://example.org"
    assert context.search_attributes == {"kind": "x"}
    assert context.tracing_context == {"traceparent": "00"}
    assert context.client is client
    assert context.data_stores is stores


def test_state_history_is_the_dict_that_was_given() -> None:
    job, kept = make(data={}), {"x": 1}
    context = JobContext(job, kept, ClientConfig(), DataStores())
    context.state_history["y"] = 2
    assert kept == {"x": 1, "y": 2}
    assert job.data == {}


def test_initial_data_is_a_copy_that_stays_the_same_for_the_whole_run() -> None:
    job = make(input={"a": {"b": 1}})
    context = JobContext(job, {}, ClientConfig(), DataStores())
    context.initial_data["a"]["b"] = 2
    assert context.initial_data == {"a": {"b": 2}}
    assert job.input == {"a": {"b": 1}}


def test_aggregation_results_outside_an_aggregator_name_the_state() -> None:
    context = JobContext(make(), {}, ClientConfig(), DataStores())
    with pytest.raises(ActionError, match="state 'work': aggregation_results"):
        _ = context.aggregation_results


def test_an_aggregator_sees_its_results_even_when_there_are_none() -> None:
    assert JobContext(make(), {}, ClientConfig(), DataStores(), {}).aggregation_results == {}
    results = {"t": {"status": "success"}}
    assert JobContext(make(), {}, ClientConfig(), DataStores(), results).aggregation_results is results


def test_actions_are_the_ones_that_the_handler_gets() -> None:
    actions = ActionFactory(Graph(blueprint="b", version="v", start="work", states={}), "work")
    assert JobContext(make(), {}, ClientConfig(), DataStores(), None, actions).actions is actions
    with pytest.raises(ActionError, match="no actions"):
        _ = JobContext(make(), {}, ClientConfig(), DataStores()).actions
