"""A mistyped parameter is refused: a filter that silently does not filter is worse than none."""

from collections.abc import Sequence

from aiohttp import web

from ..parameters import twice, unknown


def check_query(request: web.Request, known: Sequence[str] | None) -> None:
    """Let only those parameters in that the operation declares, each once, and names that begin with `_`."""
    if known is None:
        return
    query = request.query
    for name in query:
        if name.startswith("_"):
            continue
        if name not in known:
            raise unknown(name, known)
        if len(query.getall(name)) > 1:
            raise twice(name)
