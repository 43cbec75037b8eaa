"""TLS: certificates from files, for whoever listens and for whoever calls. A mistake says which setting, and why."""

import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from .errors import ConfigError
from .serialization import safe_text

log = logging.getLogger("regista.tls")

#: What OpenSSL says when a key is not the certificate's.
_MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

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


class TlsFiles(Struct, frozen=True):
    """Where a certificate, its key and an authority lie; empty: there is none."""

    #: With the intermediate ones, the own one first.
    cert: str = ""
    #: Empty: it lies in the same file.
    key: str = ""
    #: Whose certificates are believed; empty: for whoever calls, those of this machine.
    ca: str = ""


def server_context(files: TlsFiles, *, require: bool = False) -> ssl.SSLContext:
    """How to listen with this certificate. With an authority, clients may show one of its certificates, or must."""
    if not files.cert:
        raise ConfigError("TLS_CERT_PATH", "the file of a certificate, to serve TLS", "nothing")
    if require and not files.ca:
        raise ConfigError(
            "TLS_CA_PATH", "the authority of the client certificates that are required", "nothing"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A session that is resumed would bring back a certificate that was believed before the last reload.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    _load_own(context, files)
    if files.ca:
        _load_authority(context, files.ca)
        context.verify_mode = ssl.CERT_REQUIRED if require else ssl.CERT_OPTIONAL
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext | None:
    """How to call: whom to believe, and what to show. None where nothing is set: Python's own way."""
    if files == TlsFiles():
        return None
    context = ssl.create_default_context()
    if files.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_authority(context, files.ca)
    if files.cert:
        _load_own(context, files)
    elif files.key:
        raise ConfigError("TLS_CERT_PATH", "the certificate of TLS_KEY_PATH", "nothing")
    return context


def _load_authority(context: ssl.SSLContext, path: str) -> None:
    _check_readable("TLS_CA_PATH", path, "CERTIFICATE-----")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError("TLS_CA_PATH", "certificates in PEM", f"{path}: {_reason(error)}") from None


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    key = files.key or files.cert
    _check_readable("TLS_CERT_PATH", files.cert, "CERTIFICATE-----")
    _check_readable("TLS_KEY_PATH", key, "PRIVATE KEY-----")
    try:
        context.load_cert_chain(files.cert, key, password=_no_passphrase(key))
    except ssl.SSLError as error:
        if error.reason in _MISMATCHES:
            raise ConfigError(
                "TLS_KEY_PATH", f"the key of {files.cert}", f"{key}, which is another one's"
            ) from None
        told = f"{files.cert} and {key}: {_reason(error)}"
        raise ConfigError("TLS_CERT_PATH", "a certificate and its key, in PEM", told) from None


def _no_passphrase(key: str) -> Any:
    def refuse() -> str:
        raise ConfigError("TLS_KEY_PATH", "a key without a passphrase", key)

    return refuse


def _check_readable(setting: str, path: str, mark: str) -> None:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        told = f"{path}: {error.strerror or error}"
        raise ConfigError(setting, "a file that can be read", told) from None
    if mark.encode() not in text:
        kind = "a key" if "KEY" in mark else "a certificate"
        raise ConfigError(setting, f"{kind} in PEM (-----BEGIN …)", path)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class ServerTls:
    """The TLS of something that listens. Read anew, the files hold for the next connection; open ones stay as they are."""

    def __init__(self, files: TlsFiles, *, require: bool = False) -> None:
        self._files = files
        self._require = require
        self._newest = server_context(files, require=require)
        #: What the listener is given, once.
        self.context = server_context(files, require=require)
        # Asked at the beginning of every handshake, with or without a name: there the newest takes its place.
        self.context.sni_callback = self._take_newest
        self.context.sslobject_class = watched(Complaints())
        self._warn()

    def _take_newest(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._newest

    def reload(self) -> bool:
        """Read the files again. False, and all stays as it was, when there is a mistake in them."""
        try:
            self._newest = server_context(self._files, require=self._require)
        except ConfigError as error:
            log.error("the certificates stay as they were: %s", error, extra={"action": "tls_reload"})
            return False
        log.info("read the certificates anew", extra={"action": "tls_reload"})
        self._warn()
        return True

    def _warn(self) -> None:
        found = inspect_certificate(self._files)
        if found.trouble:
            told = {"action": "tls_certificate"}
            log.warning("the certificate %s: %s", self._files.cert, found.trouble, extra=told)


class CertificateInfo(Struct, frozen=True):
    """What a certificate says of itself."""

    #: Empty: it can be used now.
    trouble: str
    until: datetime | None = None
    #: The names and addresses that it is for.
    names: tuple[str, ...] = ()


def inspect_certificate(files: TlsFiles, *, calls: bool = False) -> CertificateInfo:
    """Read a certificate as a caller would see it who trusts nothing but itself; ConfigError when it cannot be used.

    `calls`: as one who is called would see it. A certificate may be good for only one of both.

    The standard library shows a certificate only after a handshake, so there is one, in memory.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_own(server, files)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(files.cert)
    if calls:
        _load_own(client, files)
        client.verify_mode = ssl.CERT_NONE
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(files.cert)
    for end in (client, server):
        end.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        shown = _handshake(server, client, seen_by=1 if calls else 0)
    except ssl.SSLCertVerificationError as error:
        return CertificateInfo(error.verify_message)
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    return CertificateInfo("", until, tuple(str(value) for _, value in shown.get("subjectAltName", ())))


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, seen_by: int = 0) -> dict[str, Any]:
    """What the client (0) sees of the server's certificate, or the server (1) of the client's."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(6):  # a handshake takes three flights at most
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return dict(ends[seen_by].getpeercert() or {})


# -- handshakes that fail: the server says why, since neither the event loop nor the other side does -----


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
