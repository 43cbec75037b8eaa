"""A mistyped parameter is refused: a filter that silently does not filter is worse than none."""

from aiohttp import web
from aiohttp.typedefs import Handler

from ..operations import QUERIES
from ..parameters import unknown


@web.middleware
async def known_query(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only those parameters in that the operation declares, and names that begin with `_`."""
    if request.query_string:
        known = QUERIES.get(request.match_info.handler)
        if known is not None:
            for name in request.query:
                if name not in known and not name.startswith("_"):
                    raise unknown(name, known)
    return await handler(request)
