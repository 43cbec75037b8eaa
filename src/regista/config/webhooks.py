"""Settings of webhooks and of the audit trail, and what `clients.toml` says about a client's webhook."""

import base64
import binascii
import ipaddress
from typing import Any

from msgspec import Struct

from .settings import Kind, Setting, count, seconds, text

#: How a secret of the Standard Webhooks begins; what follows is base64.
SECRET_PREFIX = "whsec_"
#: Bytes that such a secret may have.
SECRET_BYTES = range(24, 65)
#: What a client can ask to hear of; by default all of it.
EVENTS = ("finished", "failed", "cancelled", "quarantined", "waiting_for_human")
_EVERYWHERE = ("0.0.0.0/0", "::/0")


def _parse_networks(words: str) -> tuple[str, ...]:
    match words.strip().lower():
        case "true" | "1" | "yes" | "on":
            return _EVERYWHERE
        case "false" | "0" | "no" | "off":
            return ()
    return tuple(part for part in (word.strip() for word in words.split(",")) if part)


def _are_networks(value: Any) -> bool:
    try:
        return isinstance(value, tuple) and all(bool(ipaddress.ip_network(one)) for one in value)
    except ValueError:
        return False


_NETWORKS = Kind(
    "true, false, or networks like 10.0.0.0/8, separated by commas", _are_networks, _parse_networks
)

#: In the order of the fields of `Config`, and of docs/reference/settings.md.
WEBHOOK_SETTINGS = (
    Setting("REGISTA_WEBHOOK_ALLOW_PRIVATE", "webhook_allow_private", _NETWORKS),
    Setting("REGISTA_WEBHOOK_TIMEOUT_SECONDS", "webhook_timeout_s", seconds(zero=False)),
    Setting("REGISTA_WEBHOOK_CONCURRENCY", "webhook_concurrency", count(1)),
    Setting(
        "REGISTA_PUBLIC_URL",
        "public_url",
        text("a URL like https://jobs.example.com, or empty", r"(https?://[^\s/?#]+[^\s?#]*)?"),
    ),
    Setting("REGISTA_AUDIT_DAYS", "audit_days", count(1)),
)


class ClientWebhook(Struct, frozen=True):
    """Where a client wants to hear of its jobs. Handlers never see it: it holds the secrets."""

    #: For its jobs that name no URL of their own; None: only those that do.
    url: str | None = None
    #: Every one signs; the first is the newest. None: one is derived for it.
    secrets: tuple[str, ...] = ()
    #: Of these it hears.
    events: tuple[str, ...] = EVENTS


def secret_bytes(secret: str) -> bytes | None:
    """The key inside a secret; None when it is not one."""
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in SECRET_BYTES else None
