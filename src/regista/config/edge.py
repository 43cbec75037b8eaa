"""Settings of the edge itself: TLS that is served directly, and proxies that are believed."""

import ipaddress
from typing import Any

from .settings import MAYBE, SWITCH, Kind, Setting, seconds, text


def _networks(words: str) -> tuple[str, ...]:
    return tuple(part for part in (word.strip() for word in words.split(",")) if part)


def _are_networks(value: Any) -> bool:
    if not isinstance(value, tuple):
        return False
    try:
        return all(bool(ipaddress.ip_network(one, strict=False)) for one in value)
    except ValueError:
        return False


NETWORKS = Kind("addresses or networks like 10.0.0.0/8, separated by commas", _are_networks, _networks)
FILE = text("a file, or empty", r".*")

#: In the order of the fields of `Config`, and of docs/reference/settings.md.
EDGE_SETTINGS = (
    Setting("TLS_ENABLED", "tls_enabled", MAYBE),
    Setting("TLS_CERT_PATH", "tls_cert_path", FILE),
    Setting("TLS_KEY_PATH", "tls_key_path", FILE),
    Setting("TLS_CA_PATH", "tls_ca_path", FILE),
    Setting("TLS_REQUIRE_CLIENT_CERT", "tls_require_client_cert", SWITCH),
    Setting("REGISTA_TRUSTED_PROXIES", "trusted_proxies", NETWORKS),
)

#: Of whoever calls an orchestrator: a worker, a client, the command line.
TLS_SETTINGS = (
    Setting("TLS_CA_PATH", "tls_ca_path", FILE),
    Setting("TLS_CERT_PATH", "tls_cert_path", FILE),
    Setting("TLS_KEY_PATH", "tls_key_path", FILE),
)

_MODES = ("mixed", "mtls-only", "token-only")
#: How workers say who they are; they stand behind WORKER_REQUIRE_SIGNATURES.
CREDENTIAL_SETTINGS = (
    Setting("WORKER_AUTH_MODE", "worker_auth_mode", Kind(f"one of {', '.join(_MODES)}", _MODES.__contains__)),
    Setting("REGISTA_STS_TOKEN_SECONDS", "sts_token_s", seconds(zero=False)),
    Setting("REGISTA_STS_REFRESH_SECONDS", "sts_refresh_s", seconds(zero=False)),
)
