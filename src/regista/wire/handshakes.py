"""Handshakes that fail: whoever serves TLS says why, since neither the event loop nor the other side does."""

import logging
import ssl
import time
from collections.abc import Callable

from ..serialization import safe_text

log = logging.getLogger("regista.tls")

#: A cause is told once in so many seconds: anybody can fail as often as he likes.
EVERY_S = 60.0
#: Not a failure: more bytes have to come or go first.
_NOT_YET = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: What OpenSSL says → what it means here.
_CAUSES = {
    "HTTP_REQUEST": "somebody speaks plain http to this port; it takes https:// only",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "somebody shows no client certificate, and TLS_REQUIRE_CLIENT_CERT wants one",
    "UNSUPPORTED_PROTOCOL": "somebody speaks something older than TLS 1.2",
}
#: Alerts of whoever does not like our certificate.
_DISTRUST = ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED")


def cause_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, in plain words."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"somebody shows a client certificate that TLS_CA_PATH does not vouch for: {error.verify_message}"
        )
    if any(one in reason for one in _DISTRUST):
        return "somebody does not trust our certificate (TLS_CERT_PATH); a private authority must be named to callers"
    return _CAUSES.get(reason) or safe_text(error)


class Complaints:
    """Tells of failed handshakes, of each cause once in a while and with the number of those that were not told."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        #: Cause → when it was told, and how often it came since.
        self._told: dict[str, tuple[float, int]] = {}

    def take(self, error: ssl.SSLError) -> None:
        """A handshake has failed."""
        cause, now = cause_of(error), self._now()
        at, since = self._told.get(cause, (now - EVERY_S, 0))
        if now - at < EVERY_S:
            self._told[cause] = at, since + 1
            return
        self._told[cause] = now, 0
        more = f" ({since} more since the last time)" if since else ""
        log.warning("a TLS handshake failed: %s%s", cause, more, extra={"action": "tls_handshake"})


def watched(complaints: Complaints) -> type[ssl.SSLObject]:
    """The class of connections whose handshakes are watched, for `SSLContext.sslobject_class`."""

    class Watched(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except _NOT_YET:
                raise
            except ssl.SSLError as error:
                complaints.take(error)
                raise

    return Watched
