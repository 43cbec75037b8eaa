"""The state of this instance over HTTP: for people, probes, load balancers and Prometheus; and its chores, for operators."""

from hmac import compare_digest

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from .. import __version__
from ..maintenance.chore import ChoreStatus
from ..observe.system_state import SystemHealth, SystemState
from ..observe.telemetry import PAGE_TYPE
from . import view
from .auth import CLIENT_TOKEN_HEADER
from .callers import caller_of
from .parameters import token_in
from .problems import Problem
from .routes import Media, RouteTable
from .stage import STAGE

routes = RouteTable("health")
chore_routes = RouteTable("chores")


class Health(Struct, frozen=True):
    """How it is."""

    status: str
    version: str


class Status(Struct, frozen=True, kw_only=True):
    """How it is, in a word: initializing, ready, running, degraded, critical or shutdown."""

    status: str
    version: str
    state: str
    #: Why it is degraded or critical, by stable names.
    reasons: list[str]
    instance: str


@routes.get("/_public/status", kind="public", answers={200: Status})
async def status(request: web.Request) -> web.Response:
    """Say that the process answers, which version it is, and how it is.

    Ready: nothing to do; running: something; degraded: it goes on, but not as it should; critical: it does not.
    Asks no storage: what it says is some seconds old at most.
    """
    stage = request.app[STAGE]
    condition = SystemHealth(SystemState.READY) if stage.telemetry is None else stage.telemetry.health
    shown = Status(
        status="ok",
        version=__version__,
        state=condition.state.value,
        reasons=list(condition.reasons),
        instance=stage.config.instance_id,
    )
    return view.json(shown)


@routes.get(
    "/_public/metrics",
    kind="public",
    answers={200: Media(("text/plain",), "the metrics, as Prometheus reads them")},
    problems={
        401: "without the token, where `REGISTA_METRICS_TOKEN` is set",
        501: "switched off by OTEL_SDK_DISABLED",
    },
)
async def metrics(request: web.Request) -> web.Response:
    """TimeFormat what was counted, for Prometheus. Reads no storage."""
    stage = request.app[STAGE]
    _check_reader(request, stage.config.metrics_token)
    telemetry = stage.telemetry
    if telemetry is None or not telemetry.counts:
        raise Problem(501, "telemetry_disabled", "OTEL_SDK_DISABLED is set, so nothing is counted")
    return web.Response(body=await telemetry.prometheus_page(), headers={"Content-Type": PAGE_TYPE})


def _check_reader(request: web.Request, wanted: str) -> None:
    """Queue names may come from clients, so a token can be required to read them."""
    brought = token_in(request, CLIENT_TOKEN_HEADER)
    if wanted and not compare_digest(brought.encode(errors="surrogateescape"), wanted.encode()):
        code = "token_unknown" if brought else "token_missing"
        words = "expected the token of REGISTA_METRICS_TOKEN in Authorization: Bearer"
        raise Problem(401, code, words, headers={"WWW-Authenticate": "Bearer"})


@routes.get("/_public/live", kind="public", answers={200: Health})
async def live(request: web.Request) -> web.Response:
    """Say that the process answers: for liveness probes."""
    return view.json(Health("ok", __version__))


@routes.get(
    "/_public/ready",
    kind="public",
    answers={200: Health},
    problems={503: "not started yet, stopping, or without its store"},
)
async def ready(request: web.Request) -> web.Response:
    """Say whether it takes work: for readiness probes.

    Asks the store, so that the answer holds now: `storage_unavailable` while it cannot be reached.
    """
    await request.app[STAGE].services.system.check_ready()
    return view.json(Health("ready", __version__))


class ChoresObject(Struct, frozen=True):
    """The chores of the instance that answers, in the order in which they are done."""

    instance: str
    items: list[ChoreStatus]


@chore_routes.get("/chores", operator=True, answers={200: ChoresObject})
async def find(request: web.Request) -> web.Response:
    """Tell how the chores have fared: when each last ran, how long that took, what it did, how often it failed. For operators only.

    Of the instance that answers, since its start. A chore that one instance does for all (`needs_leader`) runs where `leading`
    is true.
    """
    stage = request.app[STAGE]
    show = view.clock_of(stage.config)
    items = [
        replace(one, last_run_at=show(one.last_run_at), last_error_at=show(one.last_error_at))
        for one in stage.services.system.chores(caller_of(request))
    ]
    return view.json(ChoresObject(stage.config.instance_id, items))
