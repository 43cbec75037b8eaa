"""The readable face of the OpenAPI document: one page, with everything that it needs inside."""

from functools import cache
from importlib.resources import files

from aiohttp import web

from .operations import Media, Operations

routes = Operations("api")

#: The page may ask its own orchestrator for the document, and nobody for anything else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


@cache
def _page() -> str:
    return (files("regista.api") / "docs.html").read_text(encoding="utf-8")


@routes.get("/docs", access="public", answers={200: Media(("text/html",), "the page")})
async def docs(request: web.Request) -> web.Response:
    """Read the documentation of the API, in a browser."""
    return web.Response(text=_page(), content_type="text/html", headers={"Content-Security-Policy": _POLICY})
