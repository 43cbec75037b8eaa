"""Our way to a route ends where aiohttp's own does, for every path."""

import warnings
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from yarl import URL

from regista import Config, OrchestratorEngine
from regista.api.router import Router

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
#: What a part of a path may be that nobody declared.
ODD = [
    "",
    ".",
    "x",
    "v1",
    "v2",
    "jobs",
    "a%2Fb",
    "a%25b",
    "100%",
    "ü",
    "%C3%BC",
    "a b",
    "{job_id}",
    "jobs:wait",
    "~",
]


class Asked(Struct):
    """As much of a request as routers look at."""

    method: str
    rel_url: URL

    @property
    def url(self) -> URL:
        return URL("http://here").join(self.rel_url)


async def handler(request: web.Request) -> web.Response:
    return web.Response()


def told(found: web.UrlMappingMatchInfo) -> Any:
    """Everything that a router says."""
    if found.http_exception is not None:
        return found.http_exception.status, getattr(found.http_exception, "allowed_methods", None)
    return found.route, dict(found)


def at_once(asked: Coroutine[Any, Any, web.UrlMappingMatchInfo]) -> web.UrlMappingMatchInfo:
    """What a router says, without a loop: routers never wait for anything."""
    try:
        asked.send(None)
    except StopIteration as over:
        return cast(web.UrlMappingMatchInfo, over.value)
    raise AssertionError("expected an answer at once, got a router that waits")


def both(router: web.UrlDispatcher, method: str, path: str) -> tuple[Any, Any]:
    """What our router says, and what aiohttp's says of the same routes."""
    request = cast(web.Request, Asked(method, URL(path, encoded=True)))
    ours, theirs = router.resolve(request), web.UrlDispatcher.resolve(router, request)
    return told(at_once(ours)), told(at_once(theirs))


def application() -> web.Application:
    config = Config(instance_id="x", client_token="t", worker_token="w")
    return OrchestratorEngine("memory", config).app


@cache
def served(prefix: str = "") -> Router:
    """The router of the whole API, as it stands or below a prefix."""
    app = application()
    if prefix:
        web.Application().add_subapp(prefix, app)
    else:
        app.freeze()
    assert isinstance(app.router, Router)
    return app.router


def paths_of(router: web.UrlDispatcher) -> list[str]:
    return sorted({resource.canonical for resource in router.resources()})


def frozen(*paths: str) -> Router:
    router = Router()
    for path in paths:
        router.add_get(path, handler)
    router.freeze()
    return router


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prefix", ["", "/mounted/here"])
def test_every_route_is_found_and_every_wrong_method_refused_as_by_aiohttp(method: str, prefix: str) -> None:
    router = served(prefix)

    for path in paths_of(router):
        for filled in (path, path.replace("{", "").replace("}", ""), path + "/", path + "/x"):
            ours, theirs = both(router, method, filled)
            assert ours == theirs, filled


@given(method=st.sampled_from(METHODS), data=st.data())
def test_any_path_at_all_is_answered_as_by_aiohttp(method: str, data: st.DataObject) -> None:
    router = served()
    known = sorted({part for path in paths_of(router) for part in path.split("/") if "{" not in part})
    parts = data.draw(st.lists(st.sampled_from(known + ODD) | st.text("ab%/{}:.é", max_size=4), max_size=7))

    ours, theirs = both(router, method, "/" + "/".join(parts))

    assert ours == theirs


@given(path=st.text("/ab%2F{}", max_size=12))
def test_patterns_of_every_kind_are_asked_in_the_order_of_aiohttp(path: str) -> None:
    # Given routes that overlap, one of which takes slashes and one of which has two names in a part
    router = frozen(
        "/{a}", "/a/{tail:.*}", "/a/{a}", "/a/b", "/{a}/b", "/a/{x}-{y}", "/a/{x:[^/]+}/b", "/", "/a/"
    )

    ours, theirs = both(router, "GET", "/" + path)

    assert ours == theirs


def test_a_path_costs_a_few_questions_however_many_routes_there_are() -> None:
    router = served()
    both(router, "GET", "/")  # the first lays it out
    place = router._start
    assert place is not None

    for part in ("", "api", "v1", "jobs", "some-job", "history"):
        place = place.ahead.get(part, place.otherwise)

    assert [one.canonical for one in place.here] == [
        "/api/v1/jobs/{job_id}/history",
        "/api/{version}/jobs/{job_id}/history",
        "/api/{tail}",
    ]


def test_an_application_that_is_mounted_twice_over_is_found_below_both_prefixes() -> None:
    app, middle = application(), web.Application()
    middle.add_subapp("/inner", app)
    web.Application().add_subapp("/outer", middle)

    ours, theirs = both(app.router, "GET", "/outer/inner/api/v1/jobs/one")

    assert ours == theirs
    assert ours[1] == {"job_id": "one"}


def test_files_and_applications_within_are_asked_too(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("hello")
    inner = web.Application()
    inner.router.add_get("/deep/{name}", handler)
    router = Router()
    router.add_static("/files", tmp_path)
    router.add_get("/files/{name}", handler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        outer = web.Application(router=router)
    outer.add_subapp("/within", inner)
    router.freeze()

    for path in (
        "/files/page.txt",
        "/files/none/such",
        "/within/deep/x",
        "/within/deep",
        "/within",
        "/other",
    ):
        ours, theirs = both(router, "GET", path)
        assert ours == theirs, path


def test_a_router_to_which_routes_may_still_come_forgets_none() -> None:
    router = Router()
    router.add_get("/a", handler)
    assert both(router, "GET", "/b")[0][0] == 404

    router.add_get("/b", handler)
    router.freeze()

    assert both(router, "GET", "/b")[0][1] == {}
