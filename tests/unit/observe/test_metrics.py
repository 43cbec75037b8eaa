import re
from pathlib import Path

from regista.observe.metrics import Metrics

#: Section 6 of the reference of the original system: those that mean something here.
ORIGINAL = {
    "orchestrator_jobs_total": {"blueprint"},
    "orchestrator_jobs_failed_total": {"blueprint"},
    "orchestrator_job_duration_seconds": {"blueprint"},
    "orchestrator_task_queue_length": set(),
    "orchestrator_active_workers": set(),
    "orchestrator_ratelimit_blocked_total": {"identifier", "path"},
    "orchestrator_jobs_timeouts_total": {"blueprint", "type"},
    "orchestrator_tasks_ignored_total": {"blueprint", "reason"},
    "orchestrator_tasks_hot_dispatched_total": {"blueprint", "kind"},
    "orchestrator_loop_lag_seconds": set(),
    "orchestrator_s3_operations_total": set(),
    "orchestrator_s3_operation_duration_seconds": set(),
    "orchestrator_scheduler_jobs_triggered_total": set(),
    "orchestrator_security_auth_failures_total": set(),
    "orchestrator_security_identity_mismatch_total": set(),
    "orchestrator_holarchy_depth_exceeded_total": set(),
    "orchestrator_signature_invalid_total": set(),
    "orchestrator_middleware_errors_total": set(),
}
HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "observe.md"


def test_the_names_of_the_source_documents_are_kept_with_their_labels() -> None:
    ours = {meter.name: set(meter.labels) for meter in Metrics().all}

    for name, labels in ORIGINAL.items():
        assert labels <= ours[name], name


def test_names_follow_the_rules_of_prometheus() -> None:
    for meter in Metrics().all:
        assert re.fullmatch(r"orchestrator_[a-z0-9_]+", meter.name)
        assert meter.name.endswith("_total") == (meter.kind == "counter")
        assert meter.help.endswith(".")


def test_every_metric_has_its_line_in_the_howto_with_its_labels() -> None:
    page = HOWTO.read_text()

    for meter in Metrics().all:
        (line,) = re.findall(rf"^\| `{meter.name}` \|.*$", page, re.MULTILINE)
        for label in meter.labels:
            assert f"`{label}`" in line, meter.name


def test_the_howto_names_no_metric_that_is_not_there() -> None:
    known = {meter.name for meter in Metrics().all}

    assert set(re.findall(r"^\| `(orchestrator_\w+)` \|", HOWTO.read_text(), re.MULTILINE)) == known
