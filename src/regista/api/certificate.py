"""Client certificates: the name in the one that a worker has shown, to us or to a proxy that we trust."""

import logging
from typing import Any

from aiohttp import web

from .address import is_trusted
from .problems import Problem
from .stage import STAGE

log = logging.getLogger("regista.doors")

#: What a trusted proxy says about the certificate that it was shown: the common name, and how its check went.
NAME_HEADER = "X-Client-Cert-CN"
VERIFY_HEADER = "X-Client-Cert-Verify"
#: What it says when the certificate is one of our authority's.
VERIFIED = "SUCCESS"


def certificate_name(request: web.Request, trusted: tuple[str, ...]) -> str | None:
    """The common name of the verified certificate of whoever asks; None when none was shown.

    Headers count only from a trusted proxy, and then they alone do: the connection's own certificate is the proxy's.
    A certificate with no common name, or with several, is a Problem: nobody could say whose it is.
    """
    if trusted and is_trusted(request.remote, trusted):
        return _said(request)
    if NAME_HEADER in request.headers:
        _warn_ignored(request)
    transport = request.transport
    certificate: dict[str, Any] | None = None
    if transport is not None:
        certificate = transport.get_extra_info("peercert")
    return _common_name(certificate) if certificate else None


def _said(request: web.Request) -> str | None:
    names, verified = request.headers.getall(NAME_HEADER, []), request.headers.getall(VERIFY_HEADER, [])
    if verified != [VERIFIED]:
        return None
    if len(names) != 1 or not names[0]:
        raise _nameless()
    return names[0]


def _common_name(certificate: dict[str, Any]) -> str:
    parts = [part for parts in certificate.get("subject", ()) for part in parts]
    names = [value for key, value in parts if key == "commonName"]
    if len(names) != 1:
        raise _nameless()
    return str(names[0])


def _nameless() -> Problem:
    return Problem(
        403, "certificate_without_name", "expected a certificate with one common name: the id of the worker"
    )


def _warn_ignored(request: web.Request) -> None:
    """Once an hour for each address: either the header is forged, or the proxy is missing in the settings."""
    peer = request.remote or "?"
    if request.app[STAGE].log_throttle.is_due(("proxy_header", peer)):
        log.warning(
            "%s from %s is ignored; if that is your proxy, name it in REGISTA_TRUSTED_PROXIES",
            NAME_HEADER,
            peer,
            extra={"action": "proxy_header_ignored"},
        )
