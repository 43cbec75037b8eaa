"""The contract of a transport for deliveries: one attempt, and how it went."""

from typing import Protocol

from msgspec import Struct


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """How an attempt to deliver went."""

    #: The status of the answer; None: there was none.
    status: int | None = None
    #: What was wrong; empty when it was delivered.
    error: str = ""
    #: Another attempt is pointless.
    final: bool = False
    #: Seconds that the receiver asks to wait before the next attempt.
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """The receiver has accepted it."""
        return not self.error


class DeliveryTransport(Protocol):
    """Makes one attempt to deliver."""

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        """POST it. Whatever the receiver or the network does is a result, never an exception."""
        ...

    async def stop(self) -> None:
        """Close what is open. Twice is fine."""
        ...
