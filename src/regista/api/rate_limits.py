"""Rate limits: requests per client, worker and address."""

import ipaddress
import math

from aiohttp import web

from ..clock import Clock
from ..config import Config
from ..config.rates import Context, rates_of
from ..model import ClientConfig, Rate
from ..storage.base import SharedState
from .buckets import Bucket
from .limits import Limits
from .network import client_address
from .problems import Problem

#: The bucket that a request was counted in; the response says how much of it is left.
COUNTED = web.RequestKey("counted", Bucket)
#: Seconds for which a socket is not read over which too much has come; short enough for heartbeats.
SOCKET_PAUSE_S = 0.5
_DETAILS = {
    Context.AUTH: "too many requests from this address brought no good token",
    Context.EMPTY_POLL: "too many polls found nothing: let a poll wait (`timeout`)",
}


class RateLimiter:
    """Counts requests, and refuses those that are too many with 429."""

    def __init__(self, config: Config, clock: Clock, shared: SharedState | None) -> None:
        self.limits = Limits(
            rates_of(config.rate_limits), clock.elapsed, None if shared is None else shared.take_tokens
        )

    async def close(self) -> None:
        """Stop waiting for the store."""
        await self.limits.close()

    async def take_for_client(self, request: web.Request, client: ClientConfig, *, read: bool) -> None:
        """Count a request of a client."""
        context = Context.READ if read else Context.SUBMIT
        own = client.rate_limits
        await self._take(
            request, context, client.name, own[context] if context in own else self.limits.rate(context)
        )

    async def take_for_public(self, request: web.Request) -> None:
        """Count a request that needs no token."""
        address = address_group(client_address(request))
        await self._take(request, Context.PUBLIC, address, self.limits.rate(Context.PUBLIC))

    async def take_for_worker(self, request: web.Request, context: Context, worker_id: str) -> None:
        """Count a message of an authenticated worker."""
        await self._take(request, context, worker_id, self.limits.rate(context))

    async def take_more(self, request: web.Request, n: int) -> None:
        """The counted request stands for `n` more: the jobs of a batch."""
        bucket = request.get(COUNTED)
        if bucket is not None and n > 0 and not await self.limits.spend(bucket, n):
            raise self.too_many_requests(bucket, n)

    async def _take(self, request: web.Request, context: Context, key: str, rate: Rate | None) -> None:
        if rate is None:
            return
        bucket = self.limits.bucket(context, key, rate)
        if not await self.limits.spend(bucket):
            raise self.too_many_requests(bucket)
        request[COUNTED] = bucket

    def pause_s(self, context: Context, worker_id: str, n: int) -> float:
        """Count `n` messages that came over a socket. Returns how long it should not be read, usually 0.

        Nothing is refused there: a socket that is not read pushes back.
        """
        rate = self.limits.rate(context)
        if rate is None:
            return 0.0
        spent = self.limits.charge(self.limits.bucket(context, worker_id, rate), n)
        return SOCKET_PAUSE_S if spent else 0.0

    def check_poll(self, request: web.Request, worker_id: str) -> None:
        """Refuse a poll of a worker whose polls found nothing too often."""
        rate = self.limits.rate(Context.EMPTY_POLL)
        if rate is not None:
            bucket = request[COUNTED] = self.limits.bucket(Context.EMPTY_POLL, worker_id, rate)
            if self.limits.is_spent(bucket):
                raise self.too_many_requests(bucket)

    def count_empty_poll(self, request: web.Request) -> None:
        """A poll found nothing."""
        bucket = request.get(COUNTED)
        if bucket is not None:
            self.limits.charge(bucket)

    def too_many_requests(self, bucket: Bucket, n: int = 1) -> Problem:
        """The refusal, with the seconds until `n` requests are allowed."""
        wait_s = max(math.ceil(self.limits.wait_s(bucket, n)), 1)
        rate = bucket.rate
        what = _DETAILS.get(Context(bucket.context), f"too many requests of the kind {bucket.context}")
        return Problem(
            429,
            "rate_limited",
            f"{what}; expected at most {rate.limit} in {rate.window_s:g} s; try again in {wait_s} s",
            headers={"Retry-After": str(wait_s), **dict(bucket.told_in_full())},
            context=str(bucket.context),
        )


def rate_headers(request: web.Request) -> tuple[tuple[str, str], ...]:
    """What is left of the limit that the request was counted in, as response headers."""
    bucket = request.get(COUNTED)
    return () if bucket is None else bucket.told()


def address_group(address: str) -> str:
    """The key that an address is counted under. Of IPv6 that is its /64 network, which one machine has for itself."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
