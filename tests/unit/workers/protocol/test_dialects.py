"""Both stock generations and ours mean the same things. wire.md 1.4, 1.5."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from regista.model import Gpu, Task
from regista.workers.protocol.dialects import (
    UNKNOWN_CAPACITY,
    task_message,
    to_heartbeat,
    to_progress,
    to_result,
    to_worker,
    unregistered_worker,
)
from regista.workers.protocol.messages import (
    BadMessage,
    Heartbeat,
    Registration,
    Result,
    WorkerEvent,
    decode_message,
)
from regista.workers.protocol.signing import verify

NOW = datetime(2026, 1, 1, tzinfo=UTC)

OLD = {
    "worker_id": "old-1",
    "worker_type": "gpu",
    "supported_skills": ["render", "encode"],
    "resources": {
        "max_concurrent_tasks": 3,
        "cpu_cores": 8,
        "gpu_info": {"model": "RTX 4090", "vram_gb": 24},
    },
    "installed_software": {"python": "3.11"},
    "installed_models": [{"name": "sd", "version": "1.5"}],
    "capabilities": {
        "hostname": "box",
        "ip_address": "10.0.0.1",
        "cost_per_skill": {"render": 0.5},
        "s3_config_hash": None,
        "extra": {"websockets": True, "region": "eu"},
    },
}
NEW = {
    "worker_id": "new-1",
    "worker_type": "gpu",
    "supported_skills": [
        {"name": "render", "type": "render", "input_schema": {"type": "object"}},
        {"name": "encode"},
    ],
    "available_skills": ["render"],
    "hot_skills": ["render"],
    "resources": {
        "devices": [
            {"type": "gpu", "model": "RTX 4090", "id": "0", "properties": {"memory_gb": 24}},
            {"type": "tpu", "model": "v4"},
        ],
        "properties": {"cpu_cores": 8, "ram_gb": 32.0, "disk": "nvme"},
    },
    "installed_software": {"python": "3.11"},
    "installed_artifacts": [{"name": "sd"}],
    "capabilities": {"hostname": "box", "cost_per_skill": {"render": 0.5}, "extra": {"region": "eu"}},
    "skills_hash": "abc",
    "timestamp": 1767225600,
    "security": {"signature": "00", "signer_id": "new-1"},
}


def registration(members: dict[str, Any]) -> Registration:
    return decode_message(msgspec.json.encode(members), Registration)


def heartbeat(**members: Any) -> Heartbeat:
    return decode_message(msgspec.json.encode(members), Heartbeat)


# -- registration ------------------------------------------------------------------------------------


def test_the_older_registration_becomes_a_worker() -> None:
    worker = to_worker(registration(OLD), 45)

    assert (worker.id, worker.skills, worker.capacity, worker.queues) == (
        "old-1",
        ("render", "encode"),
        3,
        None,
    )
    assert (worker.transport, worker.lease_s, worker.hostname) == ("poll", 45, "box")
    profile = worker.profile
    assert (profile.cpu_cores, profile.gpus) == (8, (Gpu("RTX 4090", 24),))
    assert (profile.models, profile.software) == ({"sd": "1.5"}, {"python": "3.11"})
    assert (profile.labels, profile.cost_of("render")) == ({"region": "eu"}, 0.5)


def test_the_newer_registration_becomes_the_same_worker() -> None:
    worker = to_worker(registration(NEW), 45)

    assert (worker.skills, worker.capacity) == (("render", "encode"), UNKNOWN_CAPACITY)
    assert worker.schemas == {"render": {"type": "object"}}
    profile = worker.profile
    assert (profile.cpu_cores, profile.ram_gb, profile.gpus) == (8, 32, (Gpu("RTX 4090", 24),))
    assert (profile.models, profile.hot) == ({"sd": "unknown"}, ("render",))
    assert profile.labels == {"region": "eu", "disk": "nvme"}


def test_our_own_registration_says_more() -> None:
    ours = {
        **OLD,
        "queues": ["night"],
        "labels": {"rack": 7},
        "taints": ["slow"],
        "zone": "z1",
        "cost_per_second": 0.25,
        "limits": {"render": 1},
        "schemas": {"render": {}},
        "current_tasks": [],
    }
    worker = to_worker(registration(ours), 30)

    assert (worker.queues, worker.limits, worker.schemas) == (("night",), {"render": 1}, {"render": {}})
    assert (worker.profile.zone, worker.profile.taints) == ("z1", ("slow",))
    assert (worker.profile.labels, worker.profile.cost_of("encode")) == ({"region": "eu", "rack": 7}, 0.25)


def test_what_is_missing_or_null_is_left_at_its_default_and_what_is_unknown_ignored() -> None:
    least = to_worker(registration({"worker_id": "w", "resources": None, "future": {"deep": [1]}}), 45)

    assert (least.skills, least.profile.labels) == ((), {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker_id": ""},
        {"worker_id": "a b"},
        {"worker_id": "x" * 129},
        {"worker_id": 7},
        {"supported_skills": ["a,b"]},
        {"supported_skills": "render"},
        {"supported_skills": [{"nom": "render"}]},
        {"resources": {"max_concurrent_tasks": 0}},
        {"resources": {"max_concurrent_tasks": "many"}},
        {"limits": {"render": 0}},
        {"cost_per_second": -1},
        {"capabilities": {"cost_per_skill": {"render": -0.5}}},
        {"current_tasks": [1]},
    ],
)
def test_a_registration_that_makes_no_sense_is_a_bad_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        to_worker(registration({**OLD, **wrong}), 45)


def test_a_stranger_is_bounded_by_its_polls_alone() -> None:
    worker = unregistered_worker("w", ("render",), ("sd",), 45)

    assert (worker.capacity, worker.profile.hot, worker.transport) == (UNKNOWN_CAPACITY, ("sd",), "poll")


# -- heartbeats --------------------------------------------------------------------------------------


def test_the_older_heartbeat_lists_what_can_be_started_now() -> None:
    pulse = to_heartbeat(
        heartbeat(
            worker_id="w",
            status="idle",
            load=1.0,
            current_tasks=["t-1"],
            supported_skills=["encode"],
            hot_cache=["sd"],
            skill_dependencies=None,
            hot_skills=None,
        )
    )

    assert (pulse.running, pulse.skills, pulse.available, pulse.hot) == (
        ("t-1",),
        None,
        ("encode",),
        ("sd",),
    )


def test_the_newer_heartbeat_lists_everything_only_when_it_has_changed() -> None:
    quiet = to_heartbeat(heartbeat(status="idle", available_skills=["a"], skills_hash="1", timestamp=5))
    assert (quiet.skills, quiet.available, quiet.hot) == (None, ("a",), ())
    changed = to_heartbeat(
        heartbeat(status="idle", supported_skills=[{"name": "a"}, {"name": "b"}], skills_hash="2")
    )
    assert (changed.skills, changed.available) == (("a", "b"), None)


def test_a_full_worker_of_the_newer_kind_can_start_nothing() -> None:
    assert to_heartbeat(heartbeat(status="full", current_tasks=["t"], skills_hash="1")).available == ()


def test_a_heartbeat_without_a_list_does_not_say_that_nothing_runs() -> None:
    assert to_heartbeat(heartbeat(status="idle")).running is None
    assert to_heartbeat(heartbeat(status="idle", current_tasks=[])).running == ()


# -- results and events ------------------------------------------------------------------------------


def result(**members: Any) -> Result:
    return decode_message(msgspec.json.encode({"job_id": "j", "task_id": "j_1_0-1", **members}), Result)


def test_a_result_of_either_generation() -> None:
    assert to_result(result(), "w", NOW).outcome == "success"
    assert to_result(result(status="partial", data={"a": 1}), "w", NOW).outcome == "partial"
    failed = to_result(result(status="failure", error={"code": "PERMANENT_ERROR", "message": "no"}), "w", NOW)
    assert failed.error is not None
    assert (failed.outcome, failed.error.code, failed.error.message) == ("failure", "PERMANENT_ERROR", "no")


def test_an_error_that_is_only_a_text_is_transient() -> None:
    told = to_result(result(error="hiccup"), "w", NOW)

    assert told.error is not None
    assert (told.error.code, told.error.message) == ("TRANSIENT_ERROR", "hiccup")


def test_how_long_it_took_says_when_it_began() -> None:
    took = to_result(result(costs={"execution_time_seconds": 2.5}), "w", NOW)
    assert took.started_at == NOW - timedelta(seconds=2.5)
    assert to_result(result(costs={"execution_time_seconds": "long"}), "w", NOW).started_at is None


def event(**members: Any) -> WorkerEvent:
    return decode_message(msgspec.json.encode(members), WorkerEvent)


def test_progress_of_either_generation() -> None:
    old = to_progress(event(event="progress_update", task_id="t", job_id="j", progress=0.5, message="half"))
    new = to_progress(
        event(event_type="progress", target_task_id="t", payload={"progress": 0.5, "message": "half"})
    )

    assert old == new
    assert old is not None
    assert (old.attempt_id, old.value, old.message) == ("t", 0.5, "half")


def test_progress_stays_between_0_and_1_and_other_events_are_none_of_it() -> None:
    too_far = to_progress(event(event_type="progress", target_task_id="t", payload={"progress": 7}))
    assert too_far is not None
    assert too_far.value == 1.0
    assert to_progress(event(event_type="frame_rendered", payload={})) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"event_type": "progress", "payload": {"progress": 0.5}},
        {"event_type": "progress", "target_task_id": "t", "payload": {"progress": "half"}},
        {"event_type": "progress", "target_task_id": "t", "payload": {"progress": True}},
    ],
)
def test_an_event_that_makes_no_sense_is_a_bad_message(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        to_progress(event(**wrong))


# -- tasks -------------------------------------------------------------------------------------------


def task(**members: Any) -> Task:
    return Task(id="j_2_0", job_id="j", type="render", params={"a": 1}, **members)


def test_a_task_has_the_members_of_both_generations_and_ours() -> None:
    told = task_message(task(attempt=3, checkpoint={"frame": 7}, result_by=NOW), NOW)

    assert told["task_id"] == "j_2_0-3"
    assert (told["stable_task_id"], told["attempt"], told["checkpoint"]) == ("j_2_0", 3, {"frame": 7})
    assert (told["params"], told["tracing_context"], told["params_metadata"]) == ({"a": 1}, {}, None)
    assert (told["priority"], told["step"], told["deadline"]) == (0.0, 2, 1767225600)
    assert "sig" not in told


def test_a_task_is_signed_over_what_the_stock_sdk_reads_of_it() -> None:
    told = task_message(task(), NOW, "secret")

    read_by_it = ("job_id", "task_id", "type", "params", "tracing_context", "priority", "timestamp", "step")
    assert verify({name: told[name] for name in read_by_it}, told["sig"], "secret")


# -- numbers that are too large ----------------------------------------------------------------------

HUGE = 10**400


@pytest.mark.parametrize(("said", "meant"), [(HUGE, 1.0), (-HUGE, 0.0), (3, 1.0), (0.25, 0.25), (1, 1.0)])
def test_progress_is_bounded_however_large_the_number(said: float, meant: float) -> None:
    told = to_progress(event(event_type="progress", target_task_id="t", payload={"progress": said}))

    assert told is not None
    assert told.value == meant
    assert isinstance(told.value, float)


def test_resources_that_fit_into_no_number_are_not_told() -> None:
    resources = {
        "properties": {"cpu_cores": HUGE, "ram_gb": 16},
        "devices": [{"type": "gpu", "properties": {"vram_gb": HUGE}}],
    }
    said = {"worker_id": "w", "supported_skills": ["a"], "resources": resources}
    profile = to_worker(msgspec.convert(said, Registration), 30.0).profile

    assert (profile.cpu_cores, profile.ram_gb, profile.gpus) == (0.0, 16.0, (Gpu("", 0.0),))


def test_a_duration_that_fits_into_no_number_says_nothing_about_the_beginning() -> None:
    said = Result(job_id="j", task_id="j_1_0-1", costs={"execution_time_seconds": HUGE})

    assert to_result(said, "w", NOW).started_at is None
