from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.dispatch.filters import Mismatch, first_mismatch, mismatches, satisfies, suffices
from regista.model import Gpu, Profile, QueueKey, Task, Worker
from regista.model.requirements import Constraint

A100, RTX = Gpu("NVIDIA A100-SXM4", 40), Gpu("RTX 4090", 24)


def queue_key(queue: str = "", max_cost: float | None = None, **requirements: Any) -> QueueKey:
    task = Task(
        id="j_1_0", job_id="j", type="render", queue=queue, max_cost=max_cost, requirements=requirements
    )
    return task.queue_key


def worker(
    queues: tuple[str, ...] | None = None, skills: tuple[str, ...] = ("render",), **has: Any
) -> Worker:
    return Worker(id="w", skills=skills, queues=queues, profile=Profile(**has))


def code(there: QueueKey, who: Worker) -> str | None:
    found = first_mismatch(there, who)
    return None if found is None else found.code


def test_a_task_needs_its_queue_and_its_skill() -> None:
    assert code(queue_key(), worker()) is None
    assert code(queue_key(), worker(skills=("encode",))) == "skill_missing"
    assert code(queue_key(queue="night"), worker(queues=("day",))) == "queue_not_served"
    assert code(queue_key(queue="night"), worker(queues=("day", "night"))) is None
    assert code(queue_key(queue="night"), worker(queues=None)) is None


@pytest.mark.parametrize(
    ("asked", "fits", "lacks", "code_of"),
    [
        ({"cpu_cores": 4}, {"cpu_cores": 4}, {"cpu_cores": 3.5}, "requirement_cpu_cores"),
        ({"ram_gb": 16}, {"ram_gb": 16}, {}, "requirement_ram_gb"),
        ({"disk_gb": 1}, {"disk_gb": 2}, {"disk_gb": 0.5}, "requirement_disk_gb"),
        ({"gpu": 1}, {"gpus": (RTX,)}, {}, "requirement_gpu"),
        ({"gpu": {"count": 2, "model": "a100"}}, {"gpus": (A100, A100)}, {"gpus": (A100, RTX)}, "requirement_gpu"),
        ({"gpu": {"vram_gb": 30}}, {"gpus": (RTX, A100)}, {"gpus": (RTX,)}, "requirement_gpu"),
        ({"gpu_info": {"model": "RTX", "vram_gb": 24}}, {"gpus": (RTX,)}, {"gpus": (A100,)}, "requirement_gpu"),
        ({"models": ["sd"]}, {"models": {"sd": "2"}}, {"models": {"llama": "3"}}, "requirement_models"),
        ({"models": {"sd": "2"}}, {"models": {"sd": "2"}}, {"models": {"sd": "1"}}, "requirement_models"),
        ({"installed_models": ["sd"]}, {"models": {"sd": ""}}, {}, "requirement_models"),
        (
            {"installed_artifacts": [{"name": "sd", "version": "2"}]},
            {"models": {"sd": "2"}},
            {"models": {"sd": "3"}},
            "requirement_models",
        ),
        (
            {"software": {"ffmpeg": "any"}},
            {"software": {"ffmpeg": "6"}},
            {"software": {"sox": "1"}},
            "requirement_software",
        ),
        (
            {"installed_software": {"ffmpeg": "6"}},
            {"software": {"ffmpeg": "6"}},
            {"software": {"ffmpeg": "5"}},
            "requirement_software",
        ),
        ({"zone": "eu"}, {"zone": "eu"}, {"zone": "us"}, "requirement_zone"),
        ({"zone": ["eu", "us"]}, {"zone": "us"}, {}, "requirement_zone"),
        ({"affinity": {"disk": "ssd"}}, {"labels": {"disk": "ssd"}}, {"labels": {}}, "requirement_affinity"),
        (
            {"extra_requirements": {"tier": "gold"}},
            {"labels": {"tier": "gold"}},
            {"labels": {"tier": "tin"}},
            "requirement_constraints",
        ),
        ({"min_reputation": 0.8}, {"reputation": 0.8}, {"reputation": 0.7}, "requirement_min_reputation"),
        (
            {"resources": {"properties": {"ram_gb": 8, "arch": ["arm", "x86"]}}},
            {"ram_gb": 9, "labels": {"arch": ["x86"]}},
            {"ram_gb": 9, "labels": {"arch": ["mips"]}},
            "requirement_resources",
        ),
        (
            {"resources": {"devices": [{"type": "gpu", "model": "A100", "properties": {"vram_gb": 40}}]}},
            {"gpus": (A100,)},
            {"gpus": (RTX,)},
            "requirement_gpu",
        ),
        (
            {"resources": {"devices": [{"type": "tpu", "properties": {"cores": 4}}]}},
            {"labels": {"devices": [{"type": "tpu", "properties": {"cores": 8}}]}},
            {"gpus": (A100,)},
            "requirement_devices",
        ),
    ],
)  # fmt: skip
def test_each_requirement_lets_pass_who_meets_it_and_names_what_is_missing(
    asked: dict[str, Any], fits: dict[str, Any], lacks: dict[str, Any], code_of: str
) -> None:
    assert first_mismatch(queue_key(**asked), worker(**fits)) is None
    found = first_mismatch(queue_key(**asked), worker(**lacks))
    assert found is not None
    assert found.code == code_of
    assert found.detail
    assert found.unblock


def test_a_price_above_the_limit_is_too_high() -> None:
    dear = worker(cost_per_second=1.0, cost_per_skill={"render": 3.0})
    assert code(queue_key(max_cost=3.0), dear) is None
    assert first_mismatch(queue_key(max_cost=2.0), dear) == Mismatch(
        "max_cost",
        "costs 3 per second, above max_cost 2",
        "raise max_cost to 3, or start a cheaper worker",
    )


def test_a_taint_keeps_away_whoever_does_not_tolerate_it() -> None:
    tainted = worker(taints=("spot=yes", "gpu-only"))
    assert code(queue_key(), tainted) == "taint"
    assert code(queue_key(tolerations=["spot"]), tainted) == "taint"
    assert code(queue_key(tolerations=["spot", "gpu-only"]), tainted) is None
    assert code(queue_key(tolerations=["*"]), tainted) is None


def test_devices_are_not_counted_twice() -> None:
    two = [{"type": "gpu", "model": "A100"}, {"type": "gpu"}]
    assert code(queue_key(resources={"devices": two}), worker(gpus=(A100,))) == "requirement_gpu"
    assert code(queue_key(resources={"devices": two[::-1]}), worker(gpus=(A100, RTX))) is None


def test_every_reason_is_told() -> None:
    there = queue_key(queue="night", max_cost=1.0, ram_gb=8, zone="eu")
    who = worker(skills=("sing",), queues=("day",), cost_per_second=2.0)
    assert [found.code for found in mismatches(there, who)] == [
        "skill_missing",
        "queue_not_served",
        "requirement_ram_gb",
        "requirement_zone",
        "max_cost",
    ]


def test_requirements_that_cannot_be_read_fit_nobody() -> None:
    assert code(queue_key(colour="red"), worker()) == "requirement_unreadable"


@pytest.mark.parametrize(
    ("op", "value", "have", "answer"),
    [
        ("Eq", "a", "a", True),
        ("Eq", "a", ["a", "b"], True),
        ("Eq", "a", None, False),
        ("Ne", "a", "b", True),
        ("Ne", "a", None, True),
        ("Ne", "a", ["a"], False),
        ("Gt", 3, 4, True),
        ("Gt", 3, 3, False),
        ("Gt", 3, "4", False),
        ("Gt", 3, None, False),
        ("Lt", 3, 2.5, True),
        ("Lt", 3, None, False),
        ("In", ["a", "b"], "b", True),
        ("In", ["a", "b"], ["b", "c"], True),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], "b", True),
        ("NotIn", ["a"], ["a", "b"], False),
        ("NotIn", ["a"], None, True),
    ],
)
def test_constraints_ask_labels_as_written(op: str, value: Any, have: Any, answer: bool) -> None:
    assert satisfies(Constraint("k", op, value), have) is answer


_facts: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b"])
_facts |= st.lists(st.sampled_from(["a", 1]), max_size=2)


@given(value=st.integers(-3, 3) | st.sampled_from(["a", "b"]), have=_facts)
def test_a_constraint_and_its_opposite_never_agree(value: Any, have: Any) -> None:
    assert satisfies(Constraint("k", "Eq", value), have) != satisfies(Constraint("k", "Ne", value), have)
    assert satisfies(Constraint("k", "In", [value]), have) != satisfies(
        Constraint("k", "NotIn", [value]), have
    )
    if isinstance(value, int):
        above, below = (satisfies(Constraint("k", op, value), have) for op in ("Gt", "Lt"))
        assert not (above and below)


@given(_facts, _facts)
def test_more_of_a_number_always_suffices(one: Any, other: Any) -> None:
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool | type(None)):
        assert suffices(max(one, int(other)), one)
    assert suffices(one, one) or isinstance(one, list)
