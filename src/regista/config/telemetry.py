"""The settings of logs, traces and metrics, alike for every kind of process. OpenTelemetry's names are kept."""

from typing import Protocol

from ..errors import ConfigError
from .settings import SWITCH, Kind, Setting, text

_URL = text("an http or https URL, or empty", r"(https?://\S+)?")
#: The one form of OTLP that we send.
SPOKEN = "http/protobuf"
_FORMATS = ("auto", "json", "pretty")
#: What older deployments say for the lines for people.
_TEXT = "text"


def _parse_format(words: str) -> str:
    return "pretty" if words.lower() == _TEXT else words.lower()


#: How log lines look.
LOG_SETTINGS = (
    Setting(
        "LOG_FORMAT",
        "log_format",
        Kind(f"one of {', '.join(_FORMATS)}", _FORMATS.__contains__, _parse_format),
    ),
)
#: Where spans go. Off until a receiver is named.
TRACE_SETTINGS = (
    Setting("OTEL_SDK_DISABLED", "otel_disabled", SWITCH),
    Setting("OTEL_SERVICE_NAME", "otel_service_name", text("a name", r".+")),
    Setting("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint", _URL),
    Setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "otlp_traces_endpoint", _URL),
    Setting("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp_protocol", text("the name of a protocol, or empty", r"\S*")),
)
#: Where metrics are pushed to; they are scraped anyway.
METRIC_SETTINGS = (Setting("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "otlp_metrics_endpoint", _URL),)


class Traced(Protocol):
    """Settings of any process that may trace."""

    @property
    def otel_disabled(self) -> bool: ...
    @property
    def otel_service_name(self) -> str: ...
    @property
    def otlp_endpoint(self) -> str: ...
    @property
    def otlp_traces_endpoint(self) -> str: ...
    @property
    def otlp_protocol(self) -> str: ...


def traces_endpoint(settings: Traced) -> str:
    """Where spans go; empty when nobody wants them. ConfigError when we do not speak what is spoken there."""
    return _below(settings, settings.otlp_traces_endpoint, "v1/traces")


def metrics_endpoint(settings: Traced, own: str) -> str:
    """Where metrics are pushed to; empty when nobody wants that."""
    return _below(settings, own, "v1/metrics")


def _below(settings: Traced, own: str, path: str) -> str:
    if settings.otel_disabled or not (own or settings.otlp_endpoint):
        return ""
    if settings.otlp_protocol not in ("", SPOKEN):
        expected = f"{SPOKEN}, the one that is spoken here (usually on port 4318; 4317 is grpc's)"
        raise ConfigError("OTEL_EXPORTER_OTLP_PROTOCOL", expected, settings.otlp_protocol)
    return own or f"{settings.otlp_endpoint.rstrip('/')}/{path}"


def as_json(log_format: str) -> bool | None:
    """Whether log lines are JSON; None: unless a person reads them."""
    return None if log_format == "auto" else log_format == "json"
