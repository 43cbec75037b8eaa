from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.model import check_requirements
from regista.model.requirements import Constraint, Device, read_requirements


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cpu_cores": 4, "ram_gb": 1.5, "disk_gb": 0},
        {"gpu": 2},
        {"gpu": {"count": 1, "model": "A100", "vram_gb": 40}},
        {"models": ["llama"], "software": {"ffmpeg": "6.1"}},
        {"models": {"llama": "any"}, "zone": "eu", "tolerations": ["spot"]},
        {"constraints": [{"key": "tier", "op": "In", "value": ["a", "b"]}]},
        {"affinity": {"disk": "ssd"}, "min_reputation": 0.9},
        {
            "gpu_info": {"model": "RTX", "vram_gb": 8},
            "installed_models": ["sd"],
            "extra_requirements": {"k": 1},
        },
        {"resources": {"devices": [{"type": "gpu", "model": "H100", "properties": {"vram_gb": 80}}]}},
        {"resources": {"properties": {"ram_gb": 16}}, "installed_artifacts": [{"name": "m", "version": "2"}]},
        {"installed_software": {"python": "any"}},
    ],
)
def test_every_form_of_the_documents_and_ours_can_be_read(asked: dict[str, Any]) -> None:
    assert check_requirements(asked) == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus": 1}, "'gpus' is no known requirement; did you mean 'gpu'?"),
        ({"colour": "red"}, "'colour' is no known requirement; known: cpu_cores,"),
        ({"ram_gb": "16"}, "'ram_gb': expected a number >= 0, got '16'"),
        ({"ram_gb": float("nan")}, "'ram_gb': expected a number >= 0"),
        ({"cpu_cores": True}, "expected a number >= 0, got True"),
        ({"gpu": 1.5}, "expected a whole number >= 0"),
        ({"gpu": {"colour": "red"}}, "expected a dict of count, model, vram_gb"),
        ({"models": 7}, "expected a list"),
        ({"installed_models": [{"version": "1"}]}, 'names, or {"name", "version"}'),
        ({"constraints": [{"key": "a", "op": "eq", "value": 1}]}, "op one of Eq, Ne, Gt, Lt, In, NotIn"),
        ({"constraints": [{"key": "a", "op": "Gt", "value": "x"}]}, "expected a number >= 0"),
        ({"constraints": [{"key": "a", "op": "In", "value": "x"}]}, "expected a list"),
        ({"tolerations": "spot"}, "expected a list"),
        ({"min_reputation": 2}, "a number from 0 to 1"),
        ({"resources": {"cpu": 1}}, "a dict of devices, properties"),
    ],
)
def test_a_mistake_is_told_by_its_key(asked: dict[str, Any], says: str) -> None:
    (problem,) = check_requirements(asked)
    assert says in problem


def test_every_mistake_is_told_at_once() -> None:
    assert len(check_requirements({"ram_gb": -1, "gpu": 1, "cpus": 2})) == 2


def test_the_words_of_before_mean_the_same_as_ours() -> None:
    before, _ = read_requirements(
        {
            "gpu_info": {"model": "RTX", "vram_gb": 8},
            "installed_models": ["sd"],
            "installed_software": {"x": "1"},
        }
    )
    ours, _ = read_requirements(
        {"gpu": {"model": "RTX", "vram_gb": 8}, "models": ["sd"], "software": {"x": "1"}}
    )
    assert before == ours
    assert before.devices == [Device("gpu", 1, "RTX", {"vram_gb": 8})]
    assert read_requirements({"extra_requirements": {"k": 1}})[0].constraints == [Constraint("k", "Eq", 1)]


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_keys = st.sampled_from(["gpu", "ram_gb", "resources", "constraints", "models", "zone", "affinity", "other"])


@given(st.dictionaries(_keys, _plain))
def test_nothing_that_is_asked_breaks_the_reader(asked: dict[str, Any]) -> None:
    assert all(isinstance(problem, str) for problem in check_requirements(asked))
