"""The document says what the router does, no more and no less; and people can read it."""

import html
import re
from typing import Any

import jsonschema_rs
import pytest
from aiohttp import web

from regista import Config, OrchestratorEngine, StateMachineBlueprint
from regista.api import STAGE
from regista.api.blueprint_endpoints import CATCH_ALL
from regista.api.curl_samples import curl_command
from regista.api.openapi import document
from tests.acceptance.serving import House, serving
from tests.support import answer, one_task


def app() -> web.Application:
    config = Config(instance_id="x", client_token="t", worker_token="w")
    return OrchestratorEngine("memory", config).app


def routed(app: web.Application) -> set[tuple[str, str]]:
    """Every route that a client could meet, below the documented prefix."""
    found: set[tuple[str, str]] = set()
    for route in app.router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if not path.startswith("/_worker") and "/api/{" not in path and not path.endswith(CATCH_ALL):
            found.add((route.method, re.sub(r"^/api/(?!v1/|openapi)", "/api/v1/", path)))
    return found


def told(paths: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


async def test_every_route_is_in_the_document_and_every_path_of_it_is_routed() -> None:
    served = app()
    api = document(served[STAGE].document.operations, served[STAGE])
    others = {("GET", "/api/v1/openapi.json"), ("GET", "/"), ("GET", "/docs/")}
    # Signed links: whoever follows one was told its method and its address.
    others |= {(method, "/_public/files/{job_id}/{file}") for method in ("GET", "HEAD", "PUT")}
    assert routed(served) - others == told(api["paths"])


async def test_every_operation_says_what_it_does_and_under_which_name() -> None:
    served = app()
    paths = document(served[STAGE].document.operations, served[STAGE])["paths"]
    operations = [one for methods in paths.values() for one in methods.values()]
    assert all(len(one["summary"]) > 10 for one in operations)
    ids = [one["operationId"] for one in operations]
    assert len(set(ids)) == len(ids)
    for path, methods in paths.items():
        named = set(re.findall(r"{(\w+)}", path))
        for one in methods.values():
            assert {p["name"] for p in one["parameters"] if p["in"] == "path"} == named
            assert ("security" in one) == path.startswith("/api/v1/")


async def test_every_reference_leads_somewhere() -> None:
    served = app()
    api = document(served[STAGE].document.operations, served[STAGE])
    refs = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(api)))
    assert refs == set(api["components"]["schemas"]) & refs
    assert {"JobObject", "ProblemBody", "Event"} <= refs


async def test_answers_are_what_the_document_says_they_are() -> None:
    async def body(house: House) -> None:
        api = (await house.get("/api/openapi.json", token=None)).json

        def check(path: str, method: str, status: int, answer: Any) -> None:
            schema = api["paths"][path][method]["responses"][str(status)]["content"]
            media = schema.get("application/json") or schema["application/problem+json"]
            whole = {**media["schema"], "components": api["components"]}
            jsonschema_rs.validator_for(whole).validate(answer)

        job = await house.submit("script")
        check("/api/v1/jobs", "post", 202, job)
        check("/api/v1/jobs", "get", 200, (await house.get("/api/v1/jobs")).json)
        one = f"/api/v1/jobs/{job['id']}"
        check("/api/v1/jobs/{job_id}", "get", 200, (await house.get(one)).json)
        check("/api/v1/jobs/{job_id}", "get", 404, (await house.get("/api/v1/jobs/x")).json)
        check("/api/v1/jobs/{job_id}/history", "get", 200, (await house.get(one + "/history")).json)
        check("/api/v1/jobs/{job_id}/explain", "get", 200, (await house.get(one + "/explain")).json)
        wishes = {"jobs": [{"blueprint": "script"}, {"blueprint": "x"}]}
        check("/api/v1/jobs:batch", "post", 200, (await house.post("/api/v1/jobs:batch", wishes)).json)
        waited = await house.post("/api/v1/jobs:wait", {"ids": ["x"], "timeout": 0})
        check("/api/v1/jobs:wait", "post", 200, waited.json)
        for noun in ("blueprints", "workers", "queues", "dashboard"):
            check(f"/api/v1/{noun}", "get", 200, (await house.get(f"/api/v1/{noun}")).json)

    async with serving(one_task()) as house:
        await body(house)


async def test_the_endpoint_of_a_blueprint_appears_with_it() -> None:
    async with serving() as house:
        assert "/api/v2/greet" not in (await house.get("/api/openapi.json")).json["paths"]
        blueprint = StateMachineBlueprint("greet", api_endpoint="greet", api_version="v2")
        blueprint.handler_for("start", is_start=True, is_end=True)(answer)
        house.director.register_blueprint(blueprint)
        paths = (await house.get("/api/openapi.json")).json["paths"]
        assert paths["/api/v2/greet"]["post"]["operationId"] == "start_greet"
        assert (await house.post("/api/v2/greet", {})).status == 202


async def test_people_can_read_it_without_asking_anybody_else() -> None:
    async with serving(one_task()) as house:
        page = await house.get("/docs", token=None)
        assert page.headers["Content-Type"].startswith("text/html")
        assert b"api/openapi.json" in page.body
        assert re.findall(rb"(?:src|href)=.https?://", page.body) == []
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/docs/", "/?from=mail"])
async def test_a_guess_leads_to_the_page(path: str) -> None:
    async with serving() as house, house.session.get(house.url + path) as page:
        assert (page.status, page.url.path) == (200, "/docs")


async def test_the_page_says_all_operations_with_a_call_of_each_to_those_without_javascript() -> None:
    async with serving() as house:
        page = (await house.get("/docs", token=None)).body.decode()
        static = html.unescape(page.partition("<script>")[0])
        for operation in house.director.app[STAGE].document.operations:
            assert operation.summary in static
            assert curl_command(operation) in static
