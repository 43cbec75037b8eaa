"""Builds the aiohttp application of the API."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec.structs import asdict

from ..config import Config
from ..errors import OrchestratorStopped
from ..log_throttle import LogThrottle
from ..workers.polling.service import PollingService
from ..workers.protocol.messages import VERSION_HEADER
from . import (
    audit,
    blueprints,
    bulk_jobs,
    docs,
    events,
    file_transfer,
    files,
    job_actions,
    job_history,
    jobs,
    me,
    openapi,
    queues,
    schedules,
    search,
    system,
    tokens,
    webhooks,
    workers,
)
from .auth import AuthFailures, RejectedWorkerLog
from .blueprint_endpoints import ENDPOINT, UNKNOWN_PATH, under_version
from .connection_guard import CONNECTION_GUARDS, ConnectionGuards
from .file_transfer import TransferSlots
from .middleware import RequestMiddleware
from .openapi import OpenApiDocument
from .rate_limits import RateLimiter, rate_headers
from .routes import AccessControl, Handler, Operation, add_route
from .stage import STAGE, ApiContext, Stage
from .tokens import token_service
from .worker_protocol import http, streams
from .worker_protocol import tokens as worker_tokens
from .worker_protocol.auth import version_of, worker_logins
from .worker_protocol.heartbeats import HeartbeatBatcher
from .worker_protocol.streams import WorkerStreams

#: The documented operations, one table per noun.
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
#: RouteTable that have documents of their own: the worker protocol, and signed links.
OTHERS = [http.routes, worker_tokens.routes, streams.routes, file_transfer.routes]

#: Seconds between two warnings about one address.
WARN_EVERY_S = 3600.0
#: Seconds that a client whose request is answered may go on sending a body that is not read.
_LINGER_S = 1.0


def create_app(parts: Stage) -> web.Application:
    """The whole API over these parts. The caller starts and stops them."""
    context = build_context(parts)
    guards = ConnectionGuards(parts.config.body_timeout_s)
    operations: dict[Handler, Operation] = {}

    def find_operation(request: web.Request) -> Operation | None:
        return operations.get(request.match_info.handler)

    async def set_response_headers(request: web.Request, response: web.StreamResponse) -> None:
        """What is left of the rate limit; to a worker its own protocol version, since it warns of any other."""
        response.headers.update(rate_headers(request))
        operation = find_operation(request)
        if operation is not None and operation.kind == "worker":
            response.headers[VERSION_HEADER] = version_of(request)

    app = web.Application(
        middlewares=[RequestMiddleware(guards, find_operation, parts.telemetry).handle],
        client_max_size=parts.config.max_body_bytes,
        handler_args=handler_args(parts.config),
    )
    app[STAGE] = context
    app[CONNECTION_GUARDS] = guards
    operations.update(_add_routes(app, context))
    app.on_response_prepare.append(set_response_headers)
    app.cleanup_ctx.extend([_limiter_closed, context.streams.run])
    app.on_shutdown.extend([_stop_polls, context.streams.close, _end_streams])
    return app


def build_context(parts: Stage) -> ApiContext:
    """The parts of the orchestrator, and those of the HTTP edge."""
    config, shared = parts.config, parts.storage.shared
    heartbeats = None if shared else HeartbeatBatcher(parts.workers, config.lease_s)
    worker_streams = WorkerStreams(parts.workers, config.lease_s, heartbeats)
    logins = worker_logins(parts)
    return ApiContext(
        **asdict(parts),
        limiter=RateLimiter(config, parts.clock, parts.storage if shared else None),
        log_throttle=LogThrottle(parts.clock.elapsed, WARN_EVERY_S),
        logins=logins,
        desk=PollingService(
            parts.workers, parts.dispatcher, parts.clock, config.lease_s, config.poll_lease_s
        ),
        streams=worker_streams,
        tokens=token_service(parts, logins, worker_streams),
        downloads=TransferSlots(config.s3_max_concurrency),
        uploads=TransferSlots(config.s3_max_concurrency),
        document=OpenApiDocument([operation for noun in NOUNS for operation in noun]),
    )


def _add_routes(app: web.Application, context: ApiContext) -> dict[Handler, Operation]:
    """Add all routes; returns the operation of each handler. The routes for any path come last."""
    failures = AuthFailures(context.limiter, context.config)
    rejected = RejectedWorkerLog(context.clock.elapsed)
    access = AccessControl(context.authenticator, failures, context.limiter, rejected)
    found: dict[Handler, Operation] = {}
    for operation in [operation for table in [*NOUNS, *OTHERS] for operation in table]:
        handler = access.wrap(operation)
        found[handler] = operation
        for path in operation.paths():
            add_route(app, operation.method, path, handler)
        if operation.kind == "client":
            versioned = under_version(operation)
            handler = access.wrap(versioned)
            found[handler] = versioned
            add_route(app, versioned.method, versioned.path, handler)
    for operation in (ENDPOINT, UNKNOWN_PATH):
        handler = access.wrap(operation)
        if operation is ENDPOINT:  # metrics know an unknown path by no operation
            found[handler] = operation
        add_route(app, operation.method, operation.path, handler)
    return found


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


async def _limiter_closed(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[STAGE].limiter.close()


async def _stop_polls(app: web.Application) -> None:
    await app[STAGE].desk.close()


async def _end_streams(app: web.Application) -> None:
    """End event streams and answer waiting requests now, so that the shutdown does not wait for them."""
    context = app[STAGE]
    context.feed.close()
    context.engine.fail_waiters(OrchestratorStopped())
