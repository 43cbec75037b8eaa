"""The document is made once, and anew when there are other blueprints."""

import msgspec

from regista import ActionFactory, Config, JobContext, OrchestratorEngine, StateMachineBlueprint
from regista.api.stage import STAGE


def blueprint(name: str, path: str) -> StateMachineBlueprint:
    made = StateMachineBlueprint(name, api_endpoint=path)

    @made.handler_for("start", is_start=True, is_end=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        pass

    return made


def test_whoever_asks_again_and_again_gets_what_was_made_once() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    document, stage = director.app[STAGE].document, director.app[STAGE]

    first = document.encoded(stage)
    again = document.encoded(stage)
    director.register_blueprint(blueprint("greet", "/greet"))
    more = document.encoded(stage)
    director.register_blueprint(blueprint("greet", "/welcome"))
    other = document.encoded(stage)

    assert again is first
    assert b'"/api/greet"' not in bytes(first)
    assert b'"/api/greet"' in bytes(more)
    assert b'"/api/greet"' not in bytes(other)
    assert b'"/api/welcome"' in bytes(other)


def test_what_is_made_from_history_may_be_refused_where_there_is_none() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))

    told = msgspec.json.decode(director.app[STAGE].document.encoded(director.app[STAGE]))["paths"]

    refuse = {
        path
        for path, methods in told.items()
        if "history" in methods.get("get", {}).get("responses", {}).get("501", {}).get("description", "")
    }
    assert refuse == {"/api/v1/jobs", "/api/v1/jobs:count", "/api/v1/jobs:export"}


def test_every_tag_of_an_operation_is_declared_and_every_declared_tag_is_used() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))

    told = msgspec.json.decode(director.app[STAGE].document.encoded(director.app[STAGE]))

    used = {tag for path in told["paths"].values() for one in path.values() for tag in one["tags"]}
    assert {tag["name"] for tag in told["tags"]} == used
    assert all(tag["description"] for tag in told["tags"])


def test_the_documented_size_of_a_page_is_the_one_that_is_used() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    paths = msgspec.json.decode(director.app[STAGE].document.encoded(director.app[STAGE]))["paths"]

    defaults = {
        path: one["schema"]["default"]
        for path, methods in paths.items()
        for one in methods.get("get", {}).get("parameters", ())
        if one["name"] == "limit"
    }

    long_pages = {"/api/v1/jobs/{job_id}/history", "/api/v1/jobs/{job_id}/files"}
    assert {path for path, size in defaults.items() if size == 1000} == long_pages
    assert set(defaults.values()) == {100, 1000}
