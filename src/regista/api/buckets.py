"""Buckets: who may still do how much. Local and synchronous; what instances share is taken in portions ahead."""

import math

from ..model import Rate

#: A portion is so much of the limit, and never more than so many: what an instance may hold that others cannot see.
_PORTIONS = 10
_LARGEST_PORTION = 1000
_LIMIT, _REMAINING, _RESET = "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"
_POLICY, _STATE = "RateLimit-Policy", "RateLimit"


class Bucket:
    """One key's tokens in this process. It fills evenly, so no window begins anew with a request."""

    __slots__ = ("_limit", "_per_token_s", "at", "context", "key", "portions", "rate", "tokens")

    def __init__(self, context: str, key: str, rate: Rate, now: float, shared: bool) -> None:
        self.context = context
        self.key = key
        self.rate = rate
        self.tokens = float(rate.limit)
        self.at = now
        self._per_token_s = rate.window_s / rate.limit
        self._limit = str(rate.limit)
        #: What this instance has of the tokens that all instances share; None where nobody shares.
        self.portions = Portions(rate) if shared else None

    def level(self, now: float) -> float:
        """The tokens of this moment. Below zero: more was taken than there was, and it is waited for."""
        rate = self.rate
        tokens = self.tokens + (now - self.at) * rate.limit / rate.window_s
        self.at = now
        self.tokens = tokens = tokens if tokens < rate.limit else float(rate.limit)
        return tokens

    def spend(self, n: int, now: float) -> bool:
        """Take `n`, or nothing. Who wants more than a full bucket gets it from a full one, and waits for it afterwards."""
        rate = self.rate
        limit = rate.limit
        # As `level` does, without the way there: every request comes by here.
        tokens = self.tokens + (now - self.at) * limit / rate.window_s
        self.at = now
        if tokens > limit:
            tokens = float(limit)
        if tokens < (n if n < limit else limit):
            self.tokens = tokens
            return False
        self.tokens = tokens - n
        return True

    def charge(self, n: int, now: float) -> None:
        """Take `n` for what has been done already, down to an empty bucket."""
        self.tokens = max(self.level(now) - n, 0.0)

    def is_full(self, now: float) -> bool:
        """Forgetting it changes nothing."""
        return self.level(now) >= self.rate.limit

    def left(self) -> int:
        """Whole tokens that are left, as far as is known here."""
        left = self.tokens
        portions = self.portions
        if portions is not None and portions.held + portions.in_store < left:
            left = portions.held + portions.in_store
        return int(left) if left > 0 else 0

    def told(self) -> tuple[tuple[str, str], ...]:
        """What is left, for every answer: in the words that programs know."""
        left = self.left()
        reset = math.ceil((self.rate.limit - left) * self._per_token_s)
        return ((_LIMIT, self._limit), (_REMAINING, str(left)), (_RESET, str(reset)))

    def told_in_full(self) -> tuple[tuple[str, str], ...]:
        """The same for a refusal, and again in the words of the IETF's draft."""
        rate, left = self.rate, self.left()
        reset = math.ceil((rate.limit - left) * self._per_token_s)
        return (
            *self.told(),
            (_POLICY, f'"{self.context}";q={rate.limit};w={math.ceil(rate.window_s)}'),
            (_STATE, f'"{self.context}";r={left};t={reset}'),
        )

    def wait_s(self, n: int, now: float) -> float:
        """Seconds until `n` can be taken."""
        missing = min(n, self.rate.limit) - self.level(now)
        local = missing / self.rate.per_s
        shared = 0.0 if self.portions is None else self.portions.empty_until - now
        return max(local, shared, 0.0)


class Portions:
    """What an instance has taken ahead from the store, so that a request costs no round trip."""

    __slots__ = ("empty_until", "held", "in_store", "size")

    def __init__(self, rate: Rate) -> None:
        self.size = max(1, min(rate.limit // _PORTIONS, _LARGEST_PORTION))
        #: Taken from the store, and not spent.
        self.held = 0.0
        #: What the store had left when it was asked last.
        self.in_store = float(rate.limit)
        #: The store has none to give before this moment.
        self.empty_until = 0.0

    def wants_more(self) -> bool:
        """Time to ask for the next portion, before this one is spent."""
        return self.held < self.size / 2

    def wish(self, n: int, limit: int) -> int:
        """What to ask the store for when `n` are needed now."""
        return min(max(self.size, math.ceil(n - self.held)), limit)
