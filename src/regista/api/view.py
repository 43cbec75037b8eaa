"""View: jobs and events as answers. Everything shown is flushed (FENCES 1)."""

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from aiohttp import hdrs, web
from msgspec.structs import replace

from ..config import Config
from ..model import Event
from ..schemas.job_view import TimeFormat, as_stored

_JSON: dict[str, str] = {hdrs.CONTENT_TYPE: "application/json; charset=utf-8"}
encode = msgspec.json.Encoder().encode


def json(answer: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer of records."""
    return web.Response(body=encode(answer), status=status, headers=_JSON | (headers or {}))


def clock_of(config: Config) -> TimeFormat:
    """How this orchestrator shows times: in its zone."""
    return as_stored if config.tz == "UTC" else _shown_in(config.tz)


@lru_cache(maxsize=8)
def _shown_in(tz: str) -> TimeFormat:
    from zoneinfo import ZoneInfo  # a few milliseconds that most starts can save

    zone = ZoneInfo(tz)

    def show(moment: datetime | None) -> Any:
        return None if moment is None else moment.astimezone(zone)

    return show


def shown(event: Event, show: TimeFormat) -> Event:
    """The event with its time in the zone of this orchestrator."""
    return event if show is as_stored else replace(event, at=show(event.at))
