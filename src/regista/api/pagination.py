"""Pages of small records: the position in a request, and the position of the next page."""

from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from ..schemas.pages import Page, encode_position
from ..services.pages import RecordPage
from . import parameters
from .stage import STAGE

T = TypeVar("T")


def page_request(request: web.Request) -> tuple[str, int]:
    """The key after which the page begins, and how many records it has at most (`next`, `limit`)."""
    limit = parameters.limit(request, request.app[STAGE].config.max_page)
    return parameters.place(request, str) or "", limit


def record_page(page: RecordPage[T], view: Callable[[T], Any]) -> Page[Any]:
    """The page as a response."""
    return Page([view(item) for item in page.items], None if page.end is None else encode_position(page.end))
