"""A mistyped parameter is refused: a filter that silently does not filter is worse than none."""

from typing import Any

from aiohttp import web

from ..operations import QUERIES
from ..parameters import unknown


def check_query(request: web.Request, target: Any) -> None:
    """Let only those parameters in that the operation declares, and names that begin with `_`."""
    if request.query_string:
        known = QUERIES.get(target)
        if known is not None:
            for name in request.query:
                if name not in known and not name.startswith("_"):
                    raise unknown(name, known)
