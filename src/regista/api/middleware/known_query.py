"""A mistyped parameter is refused: a filter that silently does not filter is worse than none."""

from typing import Any

from aiohttp import web

from ..operations import QUERIES
from ..parameters import twice, unknown


def check_query(request: web.Request, target: Any) -> None:
    """Let only those parameters in that the operation declares, each once, and names that begin with `_`."""
    if request.query_string:
        known = QUERIES.get(target)
        if known is not None:
            query = request.query
            for name in query:
                if name.startswith("_"):
                    continue
                if name not in known:
                    raise unknown(name, known)
                if len(query.getall(name)) > 1:
                    raise twice(name)
