"""The aiohttp application: which rooms it has, and what every request passes through."""

from aiohttp import web

from . import health
from .middleware.client_auth import client_auth
from .middleware.errors import errors
from .stage import STAGE, Stage

#: One table of routes per noun.
TABLES = [health.routes]


def create_app(stage: Stage) -> web.Application:
    """The whole API over these services. Starting and stopping them is the caller's business."""
    app = web.Application(
        middlewares=[errors, client_auth],
        client_max_size=stage.config.max_body_bytes,
        handler_args={
            "max_line_size": stage.config.max_header_bytes,
            "max_field_size": stage.config.max_header_bytes,
            # A long poll whose worker went away must not take the next task (FENCES 10).
            "handler_cancellation": True,
            "access_log": None,
        },
    )
    app[STAGE] = stage
    for table in TABLES:
        app.add_routes(table)
    return app
