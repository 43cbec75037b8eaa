"""A handler on a real port, and what a client gets from it."""

from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from regista.api.middleware import error_response

Handled = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors(request: web.Request, handler: Handled) -> web.StreamResponse:
    """What goes wrong is answered as it always is."""
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001  # as in `RequestMiddleware`
        return error_response(request, error)


async def got(handler: Handled) -> tuple[int, bytes | None]:
    """The status, and the body; None where the connection was cut before its end."""
    app = web.Application(middlewares=[errors])
    app.router.add_get("/", handler)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        session.get(server.make_url("/")) as answer,
    ):
        try:
            return answer.status, await answer.read()
        except aiohttp.ClientPayloadError:
            return answer.status, None
