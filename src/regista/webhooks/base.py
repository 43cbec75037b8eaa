"""What a try to tell somebody comes back with, and whoever makes one."""

from typing import Protocol

from msgspec import Struct


class Answer(Struct, frozen=True, kw_only=True):
    """How a try went."""

    #: The status of the answer; None: there was none.
    status: int | None = None
    #: What was wrong; empty when it was heard.
    error: str = ""
    #: Trying again is pointless.
    final: bool = False
    #: Seconds that the receiver wants to be left alone.
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        """It was heard."""
        return not self.error


class Post(Protocol):
    """Tells one receiver once."""

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        """Send it; whatever the receiver or the network does is part of the answer, never an exception."""
        ...

    async def stop(self) -> None:
        """Close what is open. Twice is fine."""
        ...
