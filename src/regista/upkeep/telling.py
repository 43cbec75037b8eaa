"""The sender of webhooks, put together as the settings say."""

import functools
import random
from collections.abc import Callable

from ..clock import Clock
from ..config import Config
from ..model import AwaitHuman, Job
from ..model.delivery import WebhookDelivery
from ..storage.base import StorageBackend, shared_secret
from ..webhooks.addresses import AddressPolicy
from ..webhooks.base import DeliveryResult, DeliveryTransport
from ..webhooks.body import render_body
from ..webhooks.registry import WebhookRegistry
from .webhooks import WebhookSender


def build_sender(
    config: Config,
    storage: StorageBackend,
    token_of: Callable[[Job], str],
    clock: Clock,
    chance: random.Random,
    on_attempt: Callable[[DeliveryResult], None],
) -> WebhookSender:
    """The sender that the settings describe. `token_of` makes the token that answers a job's question.

    `on_attempt` is called with the result of each attempt.
    """
    policy = AddressPolicy(config.webhook_allow_private)

    def body_of(delivery: WebhookDelivery) -> bytes:
        asks = isinstance(delivery.job.wait, AwaitHuman)
        return render_body(delivery, token_of(delivery.job) if asks else "", config.public_url)

    def open_transport() -> DeliveryTransport:
        from ..webhooks.client import WebhookClient  # aiohttp: most orchestrators never need it here

        return WebhookClient(policy, config.webhook_timeout_s)

    return WebhookSender(
        storage,
        open_transport,
        WebhookRegistry(policy, functools.partial(shared_secret, storage)),
        body_of,
        clock,
        chance,
        concurrency=config.webhook_concurrency,
        timeout_s=config.webhook_timeout_s,
        alone=not storage.shared,
        on_attempt=on_attempt,
    )
