"""Webhooks: words to the outside. `verify` is for whoever receives them; it needs nothing but Python."""

from .signature import BadSignature, sign, verify

__all__ = ["BadSignature", "sign", "verify"]
