"""Signed links to files: whoever has one may read or write one file for a while, and nothing else."""

import hmac
from urllib.parse import quote, urlencode

#: Where they lead to. Not below `/api`: no token is asked for.
PATH = "/_public/files"


def signed_path(secret: bytes, job_id: str, name: str, method: str, expires: int) -> str:
    """The path and query of a link that is good until the second `expires` (since 1970)."""
    query = {
        "method": method,
        "expires": str(expires),
        "signature": _signature(secret, job_id, name, method, expires),
    }
    return f"{PATH}/{quote(job_id, safe='')}/{quote(name)}?{urlencode(query)}"


def is_valid_link(secret: bytes, job_id: str, name: str, method: str, expires: int, signature: str) -> bool:
    """The signature is ours, for exactly this. How long that takes says nothing about the right one."""
    right = _signature(secret, job_id, name, method, expires)
    return hmac.compare_digest(right.encode(), signature.encode("utf-8", "surrogateescape"))


def _signature(secret: bytes, job_id: str, name: str, method: str, expires: int) -> str:
    message = f"{method}\n{expires}\n{job_id}\n{name}".encode()
    return hmac.digest(secret, message, "sha256").hex()
