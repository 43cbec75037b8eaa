"""Book: who is told where, under which secrets, and of what."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from ..config.webhooks import ClientWebhook
from ..errors import WebhookRefused
from .addresses import Allowed
from .signature import derived

#: Of whom nothing was said.
_NOBODY = ClientWebhook()
#: Characters of a URL, at most.
_MAX_URL = 2000
#: URLs that are remembered as good: a client names the same again and again.
_REMEMBERED = 500
_BLANKS = re.compile(r"[\x00-\x20\x7f]")


class Book:
    """What is known about receivers. `clients` is kept by whoever reads `clients.toml`; it may change at any time."""

    def __init__(self, allowed: Allowed, secret: Callable[[str], Awaitable[bytes]]) -> None:
        self.clients: Mapping[str, ClientWebhook] = {}
        self._secret = secret
        # What is said of a URL never changes; a refusal is not remembered, it is raised.
        self._passes = lru_cache(_REMEMBERED)(lambda url: check_url(url, allowed))
        #: What secrets are derived from; the store is asked for it once.
        self._root = b""

    def url_for(self, client: str, asked: str | None) -> str | None:
        """Where a new job of this client tells: the URL that it names, else its client's, else nowhere.

        WebhookRefused for a URL that could never be told. A name is looked up only when something is sent.
        """
        if asked is None:
            return self.clients.get(client, _NOBODY).url
        self.check(asked)
        return asked

    def check(self, url: str) -> None:
        """Raise WebhookRefused for a URL that could never be told."""
        self._passes(url)

    async def secrets_of(self, client: str) -> tuple[str, ...]:
        """What deliveries for this client's jobs are signed with: its own secrets, or one that is made for it."""
        own = self.clients.get(client, _NOBODY).secrets
        if not own:
            self._root = self._root or await self._secret("webhook")
            own = (derived(self._root, client),)
        return own

    def has_own(self, client: str) -> bool:
        """Its secrets stand in `clients.toml`."""
        return bool(self.clients.get(client, _NOBODY).secrets)

    def wants(self, client: str, event: str) -> bool:
        """The client asked to hear of such events, or has not said of which."""
        return event in self.clients.get(client, _NOBODY).events


def check_url(url: str, allowed: Allowed) -> None:
    """Raise WebhookRefused unless this is the http(s) URL of a host that may be told, as far as can be seen."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port raises where it is none
    except ValueError:
        host, parts = None, None
    if parts is None or not host or parts.scheme not in ("http", "https") or len(url) > _MAX_URL:
        raise WebhookRefused("webhook_url: expected a URL like https://example.com/hook, got something else")
    if _BLANKS.search(url):
        raise WebhookRefused("webhook_url: expected a URL without blanks and control characters")
    allowed.check_host(host)
