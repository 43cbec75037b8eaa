"""Allowance: what the client that asks may still have this month, in the zone of the orchestrator."""

from zoneinfo import ZoneInfo

from aiohttp import web

from ..engines.base import Allowance
from ..engines.native.quotas import allowance_of
from .stage import CLIENT, STAGE


def allowance(request: web.Request) -> Allowance | None:
    """The quota that a job of this request counts for; None: as many as it likes."""
    stage = request.config_dict[STAGE]
    return allowance_of(request[CLIENT], stage.clock.now(), ZoneInfo(stage.config.tz))
