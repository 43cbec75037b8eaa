"""What surrounds every handler: the trace of a request, the metrics, and when a connection is closed."""

from collections.abc import Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from regista.api.connection_guard import ConnectionGuards
from regista.api.middleware import RequestMiddleware
from regista.api.problems import Problem, problem_response
from regista.api.routes import Operation
from regista.clock import SystemClock
from regista.config import Config
from regista.observe.telemetry import Telemetry
from regista.trace_context import REQUEST_TRACE

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
#: The application is mounted below this.
PREFIX = "/somewhere"


async def answer(request: web.Request) -> web.Response:
    """What the query asks for, and the trace that the answer was made in."""
    status, code = int(request.query.get("status", "200")), request.query.get("code", "")
    response = web.Response(status=status) if status < 400 else problem_response(Problem(status, code, "no"))
    response.headers["X-Carried"] = (REQUEST_TRACE.get() or {}).get("traceparent", "")
    return response


CLIENT = Operation(method="POST", path="/api/v1/jobs/{job_id}", handler=answer, tag="jobs")
WORKER = Operation(method="POST", path="/_worker/{tail}", handler=answer, tag="w", kind="worker")


def find_operation(request: web.Request) -> Operation | None:
    return WORKER if "worker" in request.path else CLIENT


def application(telemetry: Telemetry | None) -> web.Application:
    middleware = RequestMiddleware(ConnectionGuards(60.0), find_operation, telemetry)
    app = web.Application(middlewares=[middleware.handle])
    for operation in (CLIENT, WORKER):
        app.router.add_post(operation.path, operation.handler)
    outer = web.Application()
    outer.add_subapp(PREFIX, app)
    return outer


async def ask(
    telemetry: Telemetry | None, path: str, headers: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The headers of a response."""
    async with (
        TestClient(TestServer(application(telemetry))) as client,
        client.post(PREFIX + path, headers=headers) as response,
    ):
        return response.headers


async def test_trace_is_passed_on_even_where_nothing_is_counted() -> None:
    for telemetry in (None, Telemetry(Config(), SystemClock(), present=False)):
        path = "/api/v1/jobs/j"
        assert (await ask(telemetry, path, {"traceparent": PARENT}))["X-Carried"] == PARENT
        assert (await ask(telemetry, path, {"traceparent": "nonsense"}))["X-Carried"] == ""
        assert (await ask(telemetry, path))["X-Carried"] == ""
        assert REQUEST_TRACE.get() is None


ROUTE = PREFIX + "/api/v1/jobs/{job_id}"


@pytest.mark.parametrize(
    ("status", "code", "path", "name", "labels"),
    [
        (401, "token_unknown", "/api/v1/jobs/j", "auth_failures", ("client", "token_unknown")),
        (401, "token_unknown", "/_worker/x", "auth_failures", ("worker", "token_unknown")),
        (403, "operators_only", "/api/v1/jobs/j", "identity_mismatch", ("client", "operators_only")),
        (401, "signature_wrong", "/_worker/x", "signature_invalid", ()),
        (429, "rate_limited", "/api/v1/jobs/j", "rate_limited", ("client", ROUTE)),
        (500, "internal_error", "/api/v1/jobs/j", "request_errors", ()),
    ],
)
async def test_refusals_are_counted_by_what_they_mean(
    status: int, code: str, path: str, name: str, labels: tuple[str, ...]
) -> None:
    telemetry = Telemetry(Config(), SystemClock(), present=True)

    await ask(telemetry, f"{path}?status={status}&code={code}")

    assert getattr(telemetry.metrics, name).values[labels] == 1


async def test_route_is_counted_as_it_was_declared_and_not_by_the_ids_in_it() -> None:
    telemetry = Telemetry(Config(), SystemClock(), present=True)

    await ask(telemetry, "/api/v1/jobs/one")
    await ask(telemetry, "/api/v1/jobs/two")

    assert telemetry.metrics.requests.values == {("POST", ROUTE, "200"): 2}


@pytest.mark.parametrize(
    ("headers", "closes"),
    [({}, False), ({"Connection": "Upgrade", "Upgrade": "h2c"}, True)],
    ids=["usual", "upgrade"],
)
async def test_refused_upgrade_ends_the_connection(headers: dict[str, str], closes: bool) -> None:
    answered = await ask(None, "/api/v1/jobs/j", headers)
    assert (answered.get("Connection") == "close") is closes
