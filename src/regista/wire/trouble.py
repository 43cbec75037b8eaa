"""Why nobody could be spoken to, in plain words: the same for clients and for workers."""

import os
import socket
import ssl

from ..plain import words

#: What OpenSSL finds where it expected TLS: somebody who speaks plain HTTP.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


def why(error: BaseException) -> str:
    """What kept us from an answer. Libraries wrap the reason (`os_error`) in words of their own."""
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        plain = getattr(cause, "reason", "") in _NOT_TLS
        return "it speaks http, not https; write http:// in its address" if plain else words(cause)
    if isinstance(cause, socket.gaierror):
        return "there is no host of this name"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return words(error) or type(error).__name__
