"""What is known of a route before anybody asks for it."""

from aiohttp import web
from aiohttp.web_urldispatcher import AbstractRoute

from regista import Config, OrchestratorEngine
from regista.api.destinations import Destination, Destinations


def destinations() -> dict[tuple[str, str], Destination]:
    config = Config(instance_id="x", client_token="t", worker_token="w")
    app = OrchestratorEngine("memory", config).app
    known = Destinations()
    routes: list[AbstractRoute] = [*app.router.routes()]
    return {(route.method, known.of(route).name): known.of(route) for route in routes}


def test_clients_workers_and_the_public_have_doors_of_their_own() -> None:
    found = destinations()

    assert all(one.is_for_workers == name.startswith("/_worker/") for (_, name), one in found.items())
    assert all(one.is_for_clients for (_, name), one in found.items() if name.startswith("/api/v1/jobs"))
    assert not any(one.is_for_clients and one.is_for_workers for one in found.values())
    live = found["GET", "/_public/live"]
    assert not live.is_for_clients
    assert not live.is_for_workers


def test_what_changes_nothing_is_known_by_its_method_or_its_name() -> None:
    found = destinations()

    assert found["GET", "/api/v1/jobs/{job_id}"].only_looks
    assert found["POST", "/api/v1/jobs:wait"].only_looks
    assert found["POST", "/api/v1/jobs"].only_looks is False
    assert found["*", "/api/{tail}"].only_looks is None


def test_what_may_stand_in_a_query_is_what_the_operation_declares() -> None:
    found = destinations()

    assert found["POST", "/api/v1/jobs"].query == ("wait",)
    assert found["GET", "/_public/live"].query is None


def test_a_route_is_looked_at_once_and_a_refusal_is_not_kept() -> None:
    app = web.Application()

    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    route = app.router.add_get("/a", handler)
    nowhere = web.UrlMappingMatchInfo({}, route)
    known = Destinations()

    assert known.of(route) is known.of(nowhere.route)
