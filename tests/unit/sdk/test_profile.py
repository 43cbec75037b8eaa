"""A worker as the orchestrator will know it."""

from regista.config import WorkerConfig
from regista.sdk.profile import build_worker_record, choose_worker_id, registration_body
from regista.worker import Worker


def test_the_record_joins_what_code_settings_and_machine_say() -> None:
    worker = Worker(
        "w",
        concurrency=3,
        queues=["a"],
        labels={"team": "x"},
        zone="eu",
        cost_per_second=0.5,
        models={"llama": "3"},
        software={"ffmpeg": "7"},
        taints=["gpu"],
    )
    worker.task("cut", concurrency=1)(lambda params: None)
    config = WorkerConfig(
        labels={"team": "y", "rack": 4},
        zone="us",
        cost_per_second=9,
        installed_models=[{"name": "sdxl", "version": "1"}, "clip"],
        cost_per_skill={"cut": 2},
    )

    record = build_worker_record(worker, "w1", config)

    profile = record.profile
    assert (record.capacity, record.queues, record.limits) == (3, ("a",), {"cut": 1})
    assert profile.labels == {"team": "x", "rack": 4}
    assert (profile.zone, profile.cost_per_second, profile.cost_of("cut")) == ("eu", 0.5, 2)
    assert profile.models == {"sdxl": "1", "clip": "", "llama": "3"}
    assert (profile.software, profile.taints) == ({"ffmpeg": "7"}, ("gpu",))
    assert profile.cpu_cores > 0


def test_the_operator_s_word_wins_for_how_much_and_which_queues() -> None:
    config = WorkerConfig(max_concurrent_tasks=7, queues=["b"])

    record = build_worker_record(Worker(concurrency=3, queues=["a"]), "w1", config)

    assert (record.capacity, record.queues) == (7, ("b",))


def test_an_id_is_the_configured_one_or_made_up_and_always_fit_for_the_wire() -> None:
    worker = Worker("my worker/1")

    assert choose_worker_id(worker, WorkerConfig(worker_id="w")) == "w"
    assert choose_worker_id(worker, WorkerConfig(worker_id="w"), alone=False) == "w-my-worker-1"
    one, two = choose_worker_id(worker, WorkerConfig()), choose_worker_id(worker, WorkerConfig())
    assert one != two
    assert "-my-worker-1-" in one
    assert len(choose_worker_id(Worker("x" * 300), WorkerConfig())) == 128


def test_the_registration_tells_what_runs_and_for_whom() -> None:
    worker = Worker()
    worker.task("cut")(lambda params: None)

    body = registration_body(build_worker_record(worker, "w1"), ["j_1_0-1"], "c1", True)

    assert body["current_tasks"] == ["j_1_0-1"]
    assert (body["cluster_id"], body["queues"], body["supported_skills"]) == ("c1", None, ["cut"])
