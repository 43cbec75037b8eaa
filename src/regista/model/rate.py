"""Rate: a limit on how often something may be done."""

from msgspec import Struct


class Rate(Struct, frozen=True, gc=False):
    """A token bucket: each action takes a token, and an empty bucket is full again after the window.

    `limit` may come at once; in the long run it is `limit` in every `window_s`.
    """

    limit: int
    window_s: float

    @property
    def per_s(self) -> float:
        """Tokens added per second."""
        return self.limit / self.window_s
