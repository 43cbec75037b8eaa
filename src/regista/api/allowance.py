"""MonthlyQuota: what the client that asks may still have this month, in the zone of the orchestrator."""

from aiohttp import web

from ..engines.base import MonthlyQuota
from ..engines.quotas import monthly_quota
from .stage import CLIENT, STAGE


def allowance(request: web.Request) -> MonthlyQuota | None:
    """The quota that a job of this request counts for; None: as many as it likes."""
    client = request[CLIENT]
    if client.monthly_attempts is None:
        return None
    from zoneinfo import ZoneInfo  # a few milliseconds that starts without quotas can save

    stage = request.app[STAGE]
    return monthly_quota(client, stage.clock.now(), ZoneInfo(stage.config.tz))
