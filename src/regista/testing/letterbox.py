"""Letterbox: where a test orchestrator's webhooks go instead of to the network."""

from typing import Any, NamedTuple

import msgspec

from ..webhooks.base import DeliveryResult


class Letter(NamedTuple):
    """One try to tell somebody."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]


class Letterbox:
    """Hears everything, keeps it, and answers 200; or what a test has put into `answers`, one for each try."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.answers: list[DeliveryResult] = []

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        self.letters.append(Letter(url, headers, msgspec.json.decode(body)))
        return self.answers.pop(0) if self.answers else DeliveryResult(status=200)

    async def stop(self) -> None:
        return None
