"""Alert rules, the board and the services that show them, held against the metrics that there are."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from regista.observe.metrics import Metrics
from tests.conftest import require_binary

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules" / "regista.yml"
TESTS = DEPLOY / "prometheus" / "tests" / "regista.yml"
BOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "regista.json").read_text())
#: At least these are warned of.
WANTED = {
    "RegistaNoActiveWorker",
    "RegistaManyJobsFail",
    "RegistaTasksStartLate",
    "RegistaBacklogOld",
    "RegistaHistoryBehind",
    "RegistaStoreUnavailable",
}


def known() -> dict[str, set[str]]:
    """Every series that an orchestrator exposes → its labels; those that Prometheus adds are welcome too."""
    found: dict[str, set[str]] = {"up": set()}
    for meter in Metrics().all:
        labels = set(meter.labels)
        if meter.kind == "histogram":
            found |= {f"{meter.name}_{end}": labels | {"le"} for end in ("bucket", "sum", "count")}
        else:
            found[meter.name] = labels
    return found


def rules() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Every expression of the rules and the board, by where it stands."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


QUERIES = list(queries())


def promtool(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([require_binary("promtool"), *command], capture_output=True, text=True, timeout=9)


@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", str(RULES)),
        ("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")),
        ("test", "rules", str(TESTS)),
    ],
    ids=["check rules", "check config", "test rules"],
)
def test_promtool_takes_the_rules_and_finds_that_they_do_what_they_say(command: tuple[str, ...]) -> None:
    done = promtool(*command)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[f"{n}-{q[0]}" for n, q in enumerate(QUERIES)])
def test_every_query_asks_for_metrics_and_labels_that_exist(where: str, query: str) -> None:
    series, recorded = known(), {rule["record"] for rule in rules() if "record" in rule}
    named = re.findall(r"\borchestrator_\w+", query)
    taken = set(re.findall(r"\bregista:[\w:]+", query))

    assert named or taken or "up{" in query
    assert taken <= recorded
    assert set(named) <= set(series)
    added = {"instance", "job"}
    for name, labels in re.findall(r"\b(orchestrator_\w+)\{([^}]*)\}", query):
        assert set(re.findall(r"(\w+)\s*=~?", labels)) <= series[name] | added
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    allowed = set().union(*(series[name] for name in named)) | added if named else grouped
    assert grouped <= allowed


@pytest.mark.parametrize(
    "query", [query for _, query in QUERIES], ids=[f"{n}-{q[0]}" for n, q in enumerate(QUERIES)]
)
def test_prometheus_understands_every_query(query: str, tmp_path: Path) -> None:
    filled = query.replace("$__rate_interval", "1m").replace("$instance", ".*")
    rule = {"groups": [{"name": "g", "rules": [{"record": "x", "expr": filled}]}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule))

    done = promtool("check", "rules", str(tmp_path / "rules.yml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    quiet = {
        case["alertname"] for test in tests for case in test["alert_rule_test"] if not case["exp_alerts"]
    }

    assert set(alerts) >= WANTED
    assert set(alerts) == fired == quiet
    for name, alert in alerts.items():
        assert {"summary", "action"} <= set(alert["annotations"]), name
        assert alert["labels"]["severity"] in ("critical", "warning", "info")


def test_the_panels_of_the_board_stand_side_by_side() -> None:
    places: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        assert place["x"] + place["w"] <= 24
        places |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_prometheus_and_grafana_stand_beside_the_others_and_are_not_for_strangers() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.observe.yaml").read_text())
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]

    for name in ("prometheus", "grafana"):
        service = compose["services"][name]
        assert set(service["networks"]) <= set(whole["networks"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert {"restart", "healthcheck", "deploy"} <= set(service)
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), volume
    (targets,) = [one["static_configs"][0]["targets"] for one in scraped if one["job_name"] == "regista"]
    hosts = [target.split(":")[0] for target in targets]
    assert hosts == [name for name in whole["services"] if name.startswith("orchestrator-")]
    assert scraped[0]["metrics_path"] == "/_public/metrics"
