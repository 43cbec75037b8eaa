"""Why nobody could be spoken to, in plain words: the same for clients and for workers."""

import errno
import os
import socket
import ssl

from .serialization import safe_text

#: What OpenSSL finds where it expected TLS: somebody who speaks plain HTTP.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


#: X509 error → what to do about it.
_ADVICE = {
    **dict.fromkeys((18, 19, 20, 21), "; name its authority with TLS_CA_PATH"),
    **dict.fromkeys((9, 10), "; it must be renewed, or the clock is wrong"),
}


#: What to try where somebody hangs up who has never answered.
_HUNG_UP = {
    "http": "; if it speaks TLS, write https:// in its address",
    "https": "; it may want a client certificate (TLS_CERT_PATH, TLS_KEY_PATH), or not trust ours",
}


def describe(error: BaseException, never_answered: str = "") -> str:
    """What kept us from an answer. Libraries wrap the reason (`os_error`) in words of their own.

    `never_answered`: the address, where nothing has ever come from it. Who hangs up there may want to be spoken to
    in another way; a server says so to nobody whom it cannot understand.
    """
    cause = getattr(error, "os_error", None) or error
    if never_answered and _hung_up(cause):
        return "it hung up without an answer" + _HUNG_UP.get(never_answered.partition(":")[0], "")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {_verdict(cause)}"
    if isinstance(cause, ssl.SSLError):
        return _tls_trouble(cause)
    if isinstance(cause, socket.gaierror):
        return "there is no host of this name"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return safe_text(error) or type(error).__name__


def is_refused(error: BaseException) -> bool:
    """The machine answers, and nobody has that port there: whoever just starts may have it in a moment."""
    return isinstance(getattr(error, "os_error", None) or error, ConnectionRefusedError)


def _hung_up(cause: BaseException) -> bool:
    # By its name: this room knows no HTTP library.
    if type(cause).__name__ == "ServerDisconnectedError":
        return True
    return isinstance(cause, OSError) and cause.errno in (errno.ECONNRESET, errno.EPIPE)


def _verdict(error: ssl.SSLCertVerificationError) -> str:
    return safe_text(error.verify_message) + _ADVICE.get(error.verify_code, "")


def _tls_trouble(error: ssl.SSLError) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason in _NOT_TLS:
        return "it speaks http, not https; write http:// in its address"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "it wants a client certificate; name ours with TLS_CERT_PATH and TLS_KEY_PATH"
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE_UNKNOWN" in reason:
        return "it does not trust our client certificate (TLS_CERT_PATH)"
    return safe_text(error)
