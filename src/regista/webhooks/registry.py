"""WebhookRegistry: the URL, secrets and events of each client's webhook."""

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from ..config.webhooks import ClientWebhook
from ..errors import WebhookRefused
from .addresses import AddressPolicy
from .signature import derive_secret

#: What holds for a client without settings.
_DEFAULT = ClientWebhook()
#: Characters of a URL, at most.
_MAX_URL = 2000
_BLANKS = re.compile(r"[\x00-\x20\x7f]")


class WebhookRegistry:
    """Answers where deliveries for a client's jobs go, what signs them, and which events the client wants."""

    def __init__(self, policy: AddressPolicy, secret: Callable[[str], Awaitable[bytes]]) -> None:
        """`secret` returns a lasting secret of the store by its name."""
        self._clients: Mapping[str, ClientWebhook] = {}
        self._policy = policy
        self._secret = secret
        #: What secrets are derived from; the store is asked for it once.
        self._root = b""

    def replace_clients(self, clients: Mapping[str, ClientWebhook]) -> None:
        """Use these settings, read from `clients.toml`, from now on."""
        self._clients = clients

    def url_for(self, client: str, requested: str | None) -> str | None:
        """Where events of a new job go: the URL that its submission names, else its client's, else nowhere.

        Raises WebhookRefused for a URL that can never be called. Names are looked up only when something is sent.
        """
        if requested is None:
            return self._clients.get(client, _DEFAULT).url
        self.check_url(requested)
        return requested

    def check_url(self, url: str) -> None:
        """Raise WebhookRefused unless this is an http(s) URL whose host may be called, as far as can be seen now."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port  # the port raises where it is none
        except ValueError:
            host, parts = None, None
        if parts is None or not host or parts.scheme not in ("http", "https") or len(url) > _MAX_URL:
            raise WebhookRefused(
                "webhook_url: expected a URL like https://example.com/hook, got something else"
            )
        if _BLANKS.search(url):
            raise WebhookRefused("webhook_url: expected a URL without blanks and control characters")
        self._policy.check_host(host)

    async def secrets_of(self, client: str) -> tuple[str, ...]:
        """What deliveries for this client's jobs are signed with: its own secrets, or one derived for it."""
        own = self._clients.get(client, _DEFAULT).secrets
        if not own:
            self._root = self._root or await self._secret("webhook")
            own = (derive_secret(self._root, client),)
        return own

    def has_own(self, client: str) -> bool:
        """Its secrets are in `clients.toml`."""
        return bool(self._clients.get(client, _DEFAULT).secrets)

    def wants(self, client: str, event: str) -> bool:
        """The client asked for such events, or did not restrict them."""
        return event in self._clients.get(client, _DEFAULT).events
