import pytest

from regista.config import Config, WorkerConfig
from regista.config.telemetry import as_json, metrics_endpoint, traces_endpoint
from regista.errors import ConfigError


def test_nothing_is_sent_until_a_receiver_is_named() -> None:
    assert traces_endpoint(Config()) == traces_endpoint(WorkerConfig()) == ""
    assert metrics_endpoint(Config(), "") == ""


def test_one_receiver_takes_both_below_its_own_paths() -> None:
    config = Config.from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"})

    assert traces_endpoint(config) == "http://collector:4318/v1/traces"
    assert metrics_endpoint(config, config.otlp_metrics_endpoint) == "http://collector:4318/v1/metrics"


def test_a_whole_url_wins_and_is_left_as_it_is() -> None:
    config = Config(otlp_endpoint="http://a", otlp_traces_endpoint="http://b/spans")

    assert traces_endpoint(config) == "http://b/spans"


def test_the_switch_wins_over_everything() -> None:
    config = Config.from_env({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"})

    assert traces_endpoint(config) == metrics_endpoint(config, "http://b") == ""


def test_log_lines_have_one_of_three_forms() -> None:
    assert [as_json(form) for form in ("auto", "json", "pretty")] == [None, True, False]
    assert Config.from_env({"LOG_FORMAT": "JSON"}).log_format == "json"
    assert Config.from_env({"LOG_FORMAT": "text"}).log_format == "pretty"  # as older deployments say it
    with pytest.raises(ConfigError, match="expected one of auto, json, pretty"):
        Config(log_format="xml")


def test_a_protocol_that_is_not_spoken_is_refused_where_something_would_be_sent() -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
    other = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}

    assert traces_endpoint(Config.from_env(other)) == ""
    assert traces_endpoint(Config.from_env(named | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}))
    for kind in (Config, WorkerConfig):
        with pytest.raises(ConfigError, match=r"OTLP_PROTOCOL: expected http/protobuf, .*'grpc'"):
            traces_endpoint(kind.from_env(named | other))
