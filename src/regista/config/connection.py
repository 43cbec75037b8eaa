"""The settings of whoever calls an orchestrator: the client library and the command line."""

from typing import ClassVar

from .edge import TLS_SETTINGS
from .settings import SWITCH, TOKEN, Setting, Settings, seconds, table, text
from .telemetry import TRACE_SETTINGS

#: In the order of the fields below, and of docs/reference/settings.md.
CONNECTION_SETTINGS = table(
    Setting("REGISTA_URL", "url", text("an http or https URL", r"(https?://\S+)?")),
    Setting("CLIENT_TOKEN", "token", TOKEN),
    *TLS_SETTINGS,
    Setting("REGISTA_DIR", "state_dir", text("a directory", r".+")),
    Setting("REGISTA_TIMEOUT_SECONDS", "timeout_s", seconds(zero=False)),
    Setting("REGISTA_JSON", "json", SWITCH),
    Setting("REGISTA_DEBUG", "debug", SWITCH),
    *TRACE_SETTINGS,
)


class Connection(Settings, frozen=True, kw_only=True):
    """Where the orchestrator is, and who we are to it."""

    TABLE: ClassVar = CONNECTION_SETTINGS

    #: Empty: the one that `regista serve` or `dev` left in `state_dir`; else http://127.0.0.1:8080.
    url: str = ""
    #: Empty: the one that `regista serve` or `dev` left in `state_dir`.
    token: str = ""
    #: Whose certificate the orchestrator must show (empty: those that this machine trusts), and what we show it.
    tls_ca_path: str = ""
    tls_cert_path: str = ""
    tls_key_path: str = ""
    state_dir: str = ".regista"
    timeout_s: float = 30.0
    #: For the command line: answer in JSON; show tracebacks.
    json: bool = False
    debug: bool = False
    #: For the command line: where its spans go (config/telemetry.py).
    otel_disabled: bool = False
    otel_service_name: str = "regista-client"
    otlp_endpoint: str = ""
    otlp_traces_endpoint: str = ""
    otlp_protocol: str = ""
