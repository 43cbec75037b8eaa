"""The sender of webhooks, put together as the settings say."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

from ..clock import Clock
from ..config import Config
from ..model import AwaitHuman, Job
from ..model.delivery import WebhookDelivery
from ..storage.base import StorageBackend
from ..webhooks.addresses import Allowed
from ..webhooks.base import Answer, Post
from ..webhooks.book import Book
from ..wire.webhooks import render
from .webhooks import WebhookSender


class LatePost:
    """A postman who is called when there is something to carry: most orchestrators never need an HTTP client."""

    def __init__(self, make: Callable[[], Post]) -> None:
        self._make = make
        self._made: Post | None = None

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> Coroutine[Any, Any, Answer]:
        if self._made is None:
            self._made = self._make()
        return self._made(url, headers, body)

    async def stop(self) -> None:
        if self._made is not None:
            await self._made.stop()


def _postman(allowed: Allowed, timeout_s: float) -> Post:
    from ..webhooks.postman import Postman

    return Postman(allowed, timeout_s)


def build_sender(
    config: Config,
    storage: StorageBackend,
    token_of: Callable[[Job], str],
    clock: Clock,
    chance: random.Random,
) -> WebhookSender:
    """The sender that the settings describe. `token_of` makes the token that answers a job's question."""
    allowed = Allowed(config.webhook_allow_private)

    def body_of(delivery: WebhookDelivery) -> bytes:
        asks = isinstance(delivery.job.wait, AwaitHuman)
        return render(delivery, token_of(delivery.job) if asks else "", config.public_url)

    return WebhookSender(
        storage,
        LatePost(lambda: _postman(allowed, config.webhook_timeout_s)),
        Book(allowed, storage.secret),
        body_of,
        clock,
        chance,
        concurrency=config.webhook_concurrency,
        timeout_s=config.webhook_timeout_s,
        alone=not storage.shared,
    )
