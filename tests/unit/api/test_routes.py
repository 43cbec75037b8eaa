"""The operations of the application: their kinds, and what they check."""

from regista import Config, OrchestratorEngine
from regista.api.app import NOUNS, OTHERS
from regista.api.blueprint_endpoints import ENDPOINT
from regista.api.routes import Operation

OPERATIONS = {(one.method, one.paths()[0]): one for table in [*NOUNS, *OTHERS] for one in table}


def operation(method: str, path: str) -> Operation:
    return OPERATIONS[method, path]


def test_paths_below_worker_are_for_workers_and_those_below_api_for_clients() -> None:
    for (_, path), one in OPERATIONS.items():
        assert (one.kind == "worker") == path.startswith("/_worker/")
        assert (one.kind == "client") == path.startswith("/api/v1/")


def test_operation_is_a_read_by_its_method_or_its_declaration() -> None:
    assert operation("GET", "/api/v1/jobs/{job_id}").is_read("GET")
    assert operation("POST", "/api/v1/jobs:wait").is_read("POST")
    assert not operation("POST", "/api/v1/jobs").is_read("POST")
    assert ENDPOINT.is_read("GET")
    assert not ENDPOINT.is_read("POST")


def test_query_of_an_operation_is_what_it_declares() -> None:
    assert operation("POST", "/api/v1/jobs").query == ("wait",)


def test_no_two_operations_share_a_method_and_a_path() -> None:
    every = [(one.method, path) for table in [*NOUNS, *OTHERS] for one in table for path in one.paths()]
    assert len(every) == len(set(every))


async def test_every_route_of_the_application_belongs_to_an_operation() -> None:
    config = Config(instance_id="x", client_token="t", worker_token="w")
    routes = OrchestratorEngine("memory", config).app.router.routes()
    assert len(list(routes)) > len(OPERATIONS)
