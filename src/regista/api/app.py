"""The aiohttp application: which rooms it has, and what every request passes through."""

import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ..config import Config
from ..errors import OrchestratorStopped
from . import (
    audit,
    blueprint_endpoints,
    blueprints,
    bulk_jobs,
    channel,
    docs,
    events,
    file_transfer,
    files,
    job_actions,
    job_history,
    jobs,
    logins,
    me,
    openapi,
    performers,
    queues,
    schedules,
    search,
    system,
    tokens,
    webhooks,
    workers,
)
from .connection_guard import CONNECTION_GUARDS, ConnectionGuards
from .middleware import ratelimit
from .middleware.entrance import Entrance
from .middleware.observed import Observer
from .openapi import DOCUMENT, OPERATIONS, Document
from .operations import Operation, on_expect
from .stage import STAGE, Stage

#: What clients and the public may ask for, one table per noun; the OpenAPI document tells the same.
NOUNS = [
    jobs.routes,
    search.routes,
    bulk_jobs.routes,
    job_history.routes,
    files.routes,
    job_actions.routes,
    events.routes,
    blueprints.routes,
    workers.routes,
    tokens.routes,
    queues.routes,
    schedules.routes,
    system.chore_routes,
    webhooks.routes,
    audit.routes,
    me.routes,
    system.routes,
    openapi.routes,
    docs.routes,
]
#: Seconds that an answered request may go on sending a body that nobody wants.
_LINGER_S = 1.0


def create_app(stage: Stage) -> web.Application:
    """The whole API over these services. Starting and stopping them is the caller's business."""
    gate = ratelimit.Gate(stage)
    observer, entrance = Observer(stage.telemetry), Entrance(stage, gate)
    guards = ConnectionGuards(stage.config.body_timeout_s)
    app = web.Application(
        middlewares=[guards.middleware, observer.watch, entrance.lead],
        client_max_size=stage.config.max_body_bytes,
        handler_args=handler_args(stage.config),
    )
    app[STAGE] = stage
    app[CONNECTION_GUARDS] = guards
    ratelimit.install(app, gate)
    app[OPERATIONS] = [operation for noun in NOUNS for operation in noun]
    app[DOCUMENT] = Document(app[OPERATIONS])
    logins.install(app)
    performers.install(app)
    file_transfer.install(app)
    channel.install(app)
    tokens.install(app)
    for operation in app[OPERATIONS]:
        _add(app, operation)
    app.router.add_route(
        "*", "/api/{tail:.*}", blueprint_endpoints.submit_to_endpoint, expect_handler=on_expect
    )
    app.router.add_route("*", "/{tail:.*}", blueprint_endpoints.unknown_path, expect_handler=on_expect)
    app.on_shutdown.append(_say_goodbye)
    return app


def handler_args(config: Config) -> dict[str, Any]:
    """How aiohttp's connections behave. All of these are documented arguments of `web.AppRunner`."""
    return {
        "max_line_size": config.max_header_bytes,
        "max_field_size": config.max_header_bytes,
        "lingering_time": _LINGER_S,
        # A long poll whose worker went away must not take the next task (FENCES 10).
        "handler_cancellation": True,
        "access_log": None,
        "logger": server_log,
        # `bodies` decompresses, after authentication and up to a limit.
        "auto_decompress": False,
    }


class UnreadableRequestFilter(logging.Filter):
    """Drops aiohttp's tracebacks of requests that are not HTTP: they are the client's fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for these."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


server_log = logging.getLogger("regista.http")
server_log.addFilter(UnreadableRequestFilter())


def _add(app: web.Application, operation: Operation) -> None:
    for path in operation.paths():
        app.router.add_route(operation.method, _whole(path), operation.handler, expect_handler=on_expect)
    if operation.access == "client":
        versioned = blueprint_endpoints.under_version(operation.handler)
        path = "/api/{version}" + _whole(operation.path)
        app.router.add_route(operation.method, path, versioned, expect_handler=on_expect)


def _whole(path: str) -> str:
    """The same path, where the name of a file may have braces: left to itself, aiohttp has no such part."""
    return path.replace("{file}", "{file:[^/]+}")


async def _say_goodbye(app: web.Application) -> None:
    """Streams end and waits are answered now, so that nobody has to wait for them."""
    stage = app[STAGE]
    stage.feed.close()
    stage.engine.fail_waiters(OrchestratorStopped())
