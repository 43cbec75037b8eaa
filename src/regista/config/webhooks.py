"""Webhooks of clients: what `clients.toml` says about one."""

import base64
import binascii

from msgspec import Struct

#: How a secret of the Standard Webhooks begins; what follows is base64.
SECRET_PREFIX = "whsec_"
#: Bytes that such a secret may have.
SECRET_BYTES = range(24, 65)
#: What a client can ask to hear of; by default all of it.
EVENTS = ("finished", "failed", "cancelled", "quarantined", "waiting_for_human")


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
