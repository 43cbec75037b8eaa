"""Spans of a process of the command line, from its start to its end, where somebody wants them."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..config.telemetry import TelemetrySettings, traces_endpoint
from ..errors import ConfigError


@contextmanager
def traced(config: TelemetrySettings, instance: str = "", *, everywhere: bool = True) -> Iterator[None]:
    """Trace what happens within, if a receiver is named. Its last spans are sent before this returns.

    `everywhere`: what user code traces, too; that holds for as long as the process lives.
    """
    endpoint = traces_endpoint(config)
    if not endpoint:
        yield
        return
    try:
        from ..observe.tracing import Tracing
    except ModuleNotFoundError:
        expected = "the telemetry extra (pip install 'regista[telemetry]')"
        raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT", expected, endpoint) from None
    tracing = Tracing(endpoint, config.otel_service_name, instance)
    tracing.start(everywhere=everywhere)
    try:
        yield
    finally:
        tracing.close()
