from collections.abc import Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from regista.api.middleware.observed import Observer
from regista.api.problems import Problem, response_of
from regista.clock import SystemClock
from regista.config import Config
from regista.observe.telemetry import Telemetry
from regista.trace_context import REQUEST_TRACE

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


async def answer(request: web.Request) -> web.Response:
    """What the query asks for, and the trace that the answer was made in."""
    status, code = int(request.query.get("status", "200")), request.query.get("code", "")
    response = web.Response(status=status) if status < 400 else response_of(Problem(status, code, "no"))
    response.headers["X-Carried"] = (REQUEST_TRACE.get() or {}).get("traceparent", "")
    return response


async def ask(telemetry: Telemetry | None, path: str, headers: Mapping[str, str] | None = None) -> str:
    """The trace in which a request was answered."""
    app = web.Application(middlewares=[Observer(telemetry).watch])
    app.router.add_post("/api/v1/jobs/{job_id}", answer)
    app.router.add_post("/_worker/{tail}", answer)
    async with TestClient(TestServer(app)) as client, client.post(path, headers=headers) as response:
        return response.headers.get("X-Carried", "")


async def test_a_trace_is_passed_on_even_where_nobody_counts() -> None:
    for telemetry in (None, Telemetry(Config(), SystemClock(), present=False)):
        assert await ask(telemetry, "/api/v1/jobs/j", {"traceparent": PARENT}) == PARENT
        assert await ask(telemetry, "/api/v1/jobs/j", {"traceparent": "nonsense"}) == ""
        assert await ask(telemetry, "/api/v1/jobs/j") == ""
        assert REQUEST_TRACE.get() is None


ROUTE = "/api/v1/jobs/{job_id}"


@pytest.mark.parametrize(
    ("status", "code", "path", "name", "labels"),
    [
        (401, "token_unknown", "/api/v1/jobs/j", "auth_failures", ("client", "token_unknown")),
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


async def test_a_route_is_counted_as_it_was_declared_and_not_by_the_ids_in_it() -> None:
    telemetry = Telemetry(Config(), SystemClock(), present=True)

    await ask(telemetry, "/api/v1/jobs/one")
    await ask(telemetry, "/api/v1/jobs/two")

    assert telemetry.metrics.requests.values == {("POST", ROUTE, "200"): 2}
