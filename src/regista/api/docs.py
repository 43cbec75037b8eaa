"""The OpenAPI document as a page for people: one file, with everything that it needs inside."""

from functools import cache
from html import escape
from pathlib import Path

from aiohttp import web

from .curl_samples import curl_command
from .routes import Media, Operation, RouteTable
from .stage import STAGE

routes = RouteTable("api")

#: The page may load the document from its own orchestrator, and nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
#: Where the page has its list of operations, which those without JavaScript read.
_PLACE = "<!-- operations -->"


@cache
def _page() -> str:
    return Path(__file__).with_name("docs.html").read_text(encoding="utf-8")


@routes.get("/docs", also=("/", "/docs/"), kind="public", answers={200: Media(("text/html",), "the page")})
async def docs(request: web.Request) -> web.Response:
    """Read the documentation of the API, in a browser."""
    if not request.path.endswith("/docs"):
        # Relative, so that it leads to the right place below the prefix of another application, too.
        raise web.HTTPFound("../docs" if request.path.endswith("/docs/") else "docs")
    page = _page().replace(_PLACE, operations_html(request.app[STAGE].document.operations))
    return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": _POLICY})


def operations_html(operations: list[Operation]) -> str:
    """Every operation with what it does and a call of it, as HTML."""
    return "\n".join(
        f"<p><b>{one.method}</b> <code>{escape(one.paths()[0])}</code> {escape(one.summary)}</p>\n"
        f"<pre>{escape(curl_command(one))}</pre>"
        for one in operations
    )
