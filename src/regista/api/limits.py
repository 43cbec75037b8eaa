"""Limits: how often somebody may do something, one truth over all instances that share a store.

A request far from its limit costs a look at a number in this process. Where instances share a store (Redis), each
takes tokens from the shared bucket in portions ahead, a tenth of the limit and at most a thousand, and asks for
the next one while it spends the last; so all of them together let through what the limit says, and at most
one portion per instance more. A store that is away makes each count for itself; nobody is refused because of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ..errors import RegistaError
from ..model import Rate, TokenGrant
from .buckets import Bucket, Portions

log = logging.getLogger("regista.limits")

#: Takes tokens out of a bucket that all share; see `storage.base.Counters.take`.
Take = Callable[[str, int, int, float], Awaitable[TokenGrant]]

#: Buckets that may be full are looked for when there are so many; beyond the second number the oldest are forgotten.
_SWEEP_AT = 20_000
_MOST = 100_000
#: How long a request waits for the store's word on its tokens, and how long the store is left alone after silence.
_PATIENCE_S = 0.25
_REST_S = 1.0


class Limits:
    """Every bucket of this process."""

    def __init__(
        self, rates: Mapping[str, Rate | None], elapsed: Callable[[], float], take: Take | None = None
    ) -> None:
        self._rates = dict(rates)
        self._elapsed = elapsed
        self._take = take
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._sweep_at = _SWEEP_AT
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        #: The store did not answer; until this moment each instance counts for itself.
        self._away_until = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def now(self) -> float:
        """What the buckets are told the time by."""
        return self._elapsed()

    def rate(self, context: str) -> Rate | None:
        """Everybody's rate; None is no limit."""
        return self._rates.get(context)

    def bucket(self, context: str, key: str, rate: Rate) -> Bucket:
        """The bucket of whoever this is."""
        place = (context, key)
        bucket = self._buckets.get(place)
        if bucket is None or bucket.rate is not rate:
            bucket = self._new(place, rate, bucket)
        return bucket

    def _new(self, place: tuple[str, str], rate: Rate, old: Bucket | None) -> Bucket:
        now = self._elapsed()
        if old is not None and old.rate == rate:
            old.rate = rate  # read anew from its file, and the same
            return old
        if len(self._buckets) >= self._sweep_at:
            self._sweep(now)
        bucket = self._buckets[place] = Bucket(*place, rate, now, self._take is not None)
        return bucket

    def _sweep(self, now: float) -> None:
        """Full buckets are as good as none. If too many are not full, those seen first go: memory is bounded."""
        kept = {place: one for place, one in self._buckets.items() if not one.is_full(now)}
        for place in list(kept)[: max(len(kept) - _MOST // 2, 0)] if len(kept) >= _MOST else ():
            del kept[place]
        self._buckets = kept
        self._sweep_at = max(_SWEEP_AT, min(2 * len(kept), _MOST))

    # -- taking ----------------------------------------------------------------------------------

    async def spend(self, bucket: Bucket, n: int = 1) -> bool:
        """Take `n` tokens; False when there are not enough, and nothing was taken."""
        done = self.spend_here(bucket, n)
        return await self.spend_there(bucket, n) if done is None else done

    def spend_here(self, bucket: Bucket, n: int = 1) -> bool | None:
        """The same as far as this process knows; None when the store must be asked, by `spend_there`."""
        now = self._elapsed()
        if not bucket.spend(n, now):
            return False
        portions = bucket.portions
        if portions is None:
            return True
        if portions.held < n:
            return None
        portions.held -= n
        if portions.wants_more():
            self._ask(bucket, portions, 0, now)
        return True

    async def spend_there(self, bucket: Bucket, n: int = 1) -> bool:
        """The rest of a `spend_here` that could not tell."""
        assert bucket.portions is not None
        if await self._fetch(bucket, bucket.portions, n):
            return True
        bucket.tokens += n
        return False

    def charge(self, bucket: Bucket, n: int = 1) -> bool:
        """Take `n` tokens for what has been done already. True: not one is left, which is the next one's worry."""
        now = self._elapsed()
        bucket.charge(n, now)
        portions = bucket.portions
        if portions is None:
            return bucket.tokens < 1
        portions.held = max(portions.held - n, -float(n))
        if portions.wants_more():
            self._ask(bucket, portions, n, now)
        return bucket.tokens < 1 or (portions.held < 1 and now < portions.empty_until)

    def is_spent(self, bucket: Bucket) -> bool:
        """There is not one token left."""
        now = self._elapsed()
        portions = bucket.portions
        return bucket.level(now) < 1 or (
            portions is not None and portions.held < 1 and now < portions.empty_until
        )

    def wait_s(self, bucket: Bucket, n: int = 1) -> float:
        """Seconds until `n` can be taken."""
        return bucket.wait_s(n, self._elapsed())

    # -- the shared part -------------------------------------------------------------------------

    async def _fetch(self, bucket: Bucket, portions: Portions, n: int) -> bool:
        """Wait for the store's word, together with all who wait for the same; True when `n` were had."""
        need = min(n, bucket.rate.limit)
        now = self._elapsed()
        deadline = now + _PATIENCE_S
        while portions.held < need:
            if now < portions.empty_until:
                return False
            if now >= deadline:
                self._away_until = now + _REST_S  # nobody else need wait for it
            asking = self._ask(bucket, portions, need, now)
            if asking is None:
                return True  # the store is away: what this process counts must do
            await asyncio.wait([asking], timeout=deadline - now)
            now = self._elapsed()
        portions.held -= n
        return True

    def _ask(self, bucket: Bucket, portions: Portions, n: int, now: float) -> asyncio.Task[None] | None:
        """Ask the store for more, unless that is under way; None while it is left alone."""
        if now < self._away_until or (n == 0 and now < portions.empty_until):
            return None
        place = (bucket.context, bucket.key)
        asking = self._asking.get(place)
        if asking is not None:
            return asking
        asking = asyncio.get_running_loop().create_task(self._top_up(bucket, portions, n), name="limits")
        self._asking[place] = asking
        asking.add_done_callback(lambda _: self._asking.pop(place, None))
        return asking

    async def _top_up(self, bucket: Bucket, portions: Portions, n: int) -> None:
        try:
            await self._take_some(bucket, portions, portions.wish(n, bucket.rate.limit))
        except RegistaError as error:
            self._away_until = self._elapsed() + _REST_S
            log.debug("each counts for itself: %s", error, extra={"action": "limits_local"})
        except Exception:
            self._away_until = self._elapsed() + _REST_S
            log.exception("a limit could not be shared; each counts for itself")

    async def _take_some(self, bucket: Bucket, portions: Portions, wish: int) -> None:
        """All of the wish, else what is left; when that is nothing, note until when."""
        assert self._take is not None
        name, rate = f"{bucket.context}:{bucket.key}", bucket.rate
        taken = await self._take(name, wish, rate.limit, rate.window_s)
        if not taken.ok and taken.left:
            wish = min(taken.left, wish)
            taken = await self._take(name, wish, rate.limit, rate.window_s)
        portions.in_store = float(taken.left)
        if taken.ok:
            portions.held += wish
        else:
            # One token is enough to go on with; how long the whole wish takes does not matter.
            portions.empty_until = self._elapsed() + min(taken.wait_s, rate.window_s / rate.limit)

    async def close(self) -> None:
        """Wait for nothing any more."""
        asking = list(self._asking.values())
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
