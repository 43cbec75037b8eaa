"""Signatures as the Standard Webhooks have them: HMAC-SHA256 over id, time and body, under a secret of two."""

import base64
import binascii
import hmac
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256

#: The headers of a delivery.
ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
#: How a secret is written down.
PREFIX = "whsec_"
#: Seconds that a delivery may be old, or from the future: an older one may be a replay.
TOLERANCE_S = 300.0
#: Secrets that are remembered with their keys, and clients with the secrets that were made for them.
_REMEMBERED = 500


class BadSignature(ValueError):
    """Nobody who knows the secret has sent this, or it is too old."""


@lru_cache(_REMEMBERED)
def key_of(secret: str) -> bytes:
    """The key inside a `whsec_…` secret."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected a secret like {PREFIX}…, got something else") from None


def secret_of(key: bytes) -> str:
    """A key, written down."""
    return PREFIX + base64.b64encode(key).decode()


@lru_cache(_REMEMBERED)
def derive_secret(root: bytes, client: str) -> str:
    """The secret that a client has which was given none: nobody can guess it, and it is always the same."""
    return secret_of(hmac.digest(root, b"webhook\n" + client.encode(), "sha256"))


def sign(secrets: Iterable[str], delivery_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that prove where a delivery comes from. With several secrets each of them does."""
    signatures = " ".join(_signature(key_of(secret), delivery_id, str(seconds), body) for secret in secrets)
    return {ID: delivery_id, TIMESTAMP: str(seconds), SIGNATURE: signatures}


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> str:
    """The id of the delivery, when it is genuine and fresh; else BadSignature. `body` as it came, byte for byte.

    The same id may come again: whoever has dealt with it answers 200 and does nothing.
    """
    small = {name.lower(): value for name, value in headers.items()}
    try:
        delivery_id, stamp, given = small[ID], small[TIMESTAMP], small[SIGNATURE]
        seconds = int(stamp)
    except (KeyError, ValueError):
        raise BadSignature(f"expected the headers {ID}, {TIMESTAMP} and {SIGNATURE}") from None
    right = _signature(key_of(secret), delivery_id, stamp, body).encode()
    # Every one of them, to the end: how long it takes says nothing about where they differ.
    fits = [hmac.compare_digest(right, one.encode("utf-8", "replace")) for one in given.split(" ")]
    if not any(fits):
        raise BadSignature("the signature is not one of this secret")
    if abs((time.time() if now is None else now) - seconds) > tolerance_s:
        raise BadSignature(f"expected a delivery of the last {tolerance_s:g} s; this one may be a replay")
    return delivery_id


def _signature(key: bytes, delivery_id: str, seconds: str, body: bytes) -> str:
    # Not `hmac.digest`: with the OpenSSL of today it takes twice as long.
    signed = hmac.new(key, b"%b.%b.%b" % (delivery_id.encode(), seconds.encode(), body), sha256)
    return "v1," + base64.b64encode(signed.digest()).decode()
