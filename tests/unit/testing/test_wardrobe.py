from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regista.dispatch.filters import first_mismatch
from regista.model import Task, Worker
from regista.testing.wardrobe import profile_for

_words = st.sampled_from(["a", "b"])
_asked = st.fixed_dictionaries(
    {},
    optional={
        "ram_gb": st.integers(0, 64),
        "cpu_cores": st.floats(0, 8),
        "gpu": st.integers(0, 3) | st.fixed_dictionaries({"count": st.just(2), "vram_gb": st.integers(1, 80)}),
        "models": st.lists(_words) | st.dictionaries(_words, st.sampled_from(["any", "2"])),
        "software": st.dictionaries(_words, st.sampled_from(["any", "1.0"])),
        "zone": _words | st.lists(_words, min_size=1),
        "affinity": st.dictionaries(st.sampled_from(["x", "y"]), _words),
        "constraints": st.lists(
            st.builds(
                lambda op, value: {"key": op, "op": op, "value": [value] if op == "In" else value},
                st.sampled_from(["Eq", "Gt", "Lt", "In"]),
                st.integers(1, 9),
            ),
            max_size=4,
            unique_by=lambda one: one["op"],
        ),
        "resources": st.fixed_dictionaries(
            {"devices": st.just([{"type": "tpu", "model": "v4"}]), "properties": st.just({"arch": ["arm"]})}
        ),
    },
)  # fmt: skip


@given(_asked)
def test_whoever_wears_it_meets_what_was_asked_for(asked: dict[str, Any]) -> None:
    queue_key = Task(id="j_1_0", job_id="j", type="t", requirements=asked, max_cost=1.0).queue_key
    assert first_mismatch(queue_key, Worker(id="w", skills=("t",), profile=profile_for(queue_key))) is None
