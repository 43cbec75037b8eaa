"""The settings of logs, traces and metrics, alike for every kind of process. OpenTelemetry's names are kept."""

from typing import Annotated, ClassVar

from ..errors import ConfigError
from .settings import SWITCH, Kind, Settings, env, text

URL = text("an http or https URL, or empty", r"(https?://\S+)?")
#: The one form of OTLP that we send.
SPOKEN = "http/protobuf"
_FORMATS = ("auto", "json", "pretty")
#: What older deployments say for the lines for people.
_TEXT = "text"


def _parse_format(words: str) -> str:
    return "pretty" if words.lower() == _TEXT else words.lower()


ServiceName = Annotated[
    str,
    env(
        "OTEL_SERVICE_NAME",
        kind=text("a name", ".+"),
        help=(
            "The name under which this process appears in traces and pushed metrics. "
            "`OTEL_RESOURCE_ATTRIBUTES` may add more about it."
        ),
    ),
]


class TelemetrySettings(Settings, frozen=True, kw_only=True):
    """How any process logs, and where its spans go. Spans are off until a receiver is named."""

    SECTIONS: ClassVar = {"log_format": "Logs and traces"}

    log_format: Annotated[
        str,
        env(
            "LOG_FORMAT",
            kind=Kind(f"one of {', '.join(_FORMATS)}", _FORMATS.__contains__, _parse_format),
            help=(
                "How log lines look, on standard error: `json` (one object per line, with ids), `pretty` (for "
                "people; `text` means it, too), or `auto`: pretty on a terminal, JSON everywhere else. See "
                "[Observe it](../howto/observe.md)."
            ),
        ),
    ] = "auto"
    otel_disabled: Annotated[
        bool,
        env(
            "OTEL_SDK_DISABLED",
            kind=SWITCH,
            help=(
                "Switches telemetry off: no spans, and an orchestrator counts nothing (`/_public/metrics` says "
                "so), whatever else is set and installed."
            ),
        ),
    ] = False
    otel_service_name: ServiceName = "regista"
    otlp_endpoint: Annotated[
        str,
        env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            kind=URL,
            help=(
                "The base URL of an OTLP receiver over HTTP, like `http://collector:4318`; spans go to "
                "`/v1/traces` below it, metrics to `/v1/metrics`. Empty means that nothing is sent. Needs the "
                "extra `regista[telemetry]`; headers, timeouts and sampling are set by OpenTelemetry's other "
                "variables."
            ),
        ),
    ] = ""
    otlp_traces_endpoint: Annotated[
        str,
        env(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            kind=URL,
            help=(
                "The whole URL that spans go to, where it is another one than that of "
                "`OTEL_EXPORTER_OTLP_ENDPOINT`."
            ),
        ),
    ] = ""
    otlp_protocol: Annotated[
        str,
        env(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            kind=text("the name of a protocol, or empty", "\\S*"),
            help=(
                "Only `http/protobuf` is spoken; where something is sent, any other (`grpc`, `http/json`) stops "
                "the start."
            ),
        ),
    ] = ""


def traces_endpoint(settings: TelemetrySettings) -> str:
    """Where spans go; empty when nobody wants them. ConfigError when we do not speak what is spoken there."""
    return _below(settings, settings.otlp_traces_endpoint, "v1/traces")


def metrics_endpoint(settings: TelemetrySettings, own: str) -> str:
    """Where metrics are pushed to; empty when nobody wants that."""
    return _below(settings, own, "v1/metrics")


def _below(settings: TelemetrySettings, own: str, path: str) -> str:
    if settings.otel_disabled or not (own or settings.otlp_endpoint):
        return ""
    if settings.otlp_protocol not in ("", SPOKEN):
        expected = f"{SPOKEN}, the one that is spoken here (usually on port 4318; 4317 is grpc's)"
        raise ConfigError("OTEL_EXPORTER_OTLP_PROTOCOL", expected, settings.otlp_protocol)
    return own or f"{settings.otlp_endpoint.rstrip('/')}/{path}"


def as_json(log_format: str) -> bool | None:
    """Whether log lines are JSON; None: unless a person reads them."""
    return None if log_format == "auto" else log_format == "json"
