"""The signature's canonical form is the stock SDK's, byte for byte. wire.md 1.2."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.workers.protocol.messages import BadMessage
from regista.workers.protocol.signing import canonical, sign, verify


def test_the_form_is_compact_sorted_and_without_nulls() -> None:
    said = {"b": {"z": None, "y": [None, {"x": None}]}, "a": 1, "c": None}

    assert canonical(said) == b'{"a":1,"b":{"y":[null,{}]}}'


def test_integral_floats_are_written_as_integers_and_other_text_as_it_is() -> None:
    assert canonical({"a": 3.0, "b": 0.5, "c": "ü", "d": -0.0}) == '{"a":3,"b":0.5,"c":"ü","d":0}'.encode()


def test_the_signature_itself_is_never_part_of_what_is_signed() -> None:
    said = {"a": 1, "security": {"signature": "x"}, "_signature": "y", "bubbling_chain": ["z"]}

    assert canonical(said, ("bubbling_chain",)) == b'{"a":1}'


def test_it_is_the_signature_that_the_stock_sdk_makes() -> None:
    # made with rxon 1.0b17
    heartbeat = {
        "worker_id": "w-1",
        "status": "idle",
        "current_tasks": [],
        "skills_hash": "ab",
        "timestamp": 1700000000,
        "usage": {"cpu_load_percent": 12.5, "ram_used_gb": 3.0, "devices_usage": None},
        "note": "Größe \u2028 \t",
        "security": {"signature": "x"},
    }
    assert sign(heartbeat, "a-worker-token") == (
        "406fbdc5a1d3c31cf348296fbdcfa6e8dcc6414aaa02df3f7fdee43155d81ab9"
    )
    event = {
        "event_id": "e",
        "worker_id": "w",
        "origin_worker_id": "w",
        "event_type": "progress",
        "payload": {"progress": 1.0},
        "bubbling_chain": ["a"],
        "timestamp": 1,
    }
    assert sign(event, "k", ("bubbling_chain",)) == (
        "6fd0ad1d2a6e82959f5f5207b0d01190946ed562d764973d6497c18c32cd1b06"
    )


def test_what_cannot_be_signed_is_a_bad_message_and_no_crash() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(BadMessage):
        canonical({"a": deep})


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), plain, max_size=4), st.text(min_size=1, max_size=8))
def test_a_signature_fits_its_message_and_key_and_no_other(said: dict[str, Any], key: str) -> None:
    signature = sign(said, key)

    assert verify(said, signature, key)
    assert verify(dict(reversed(said.items())), signature, key)  # the order of members is nothing
    assert not verify({**said, "more": 1}, signature, key)
    assert not verify(said, signature, key + "x")
    assert not verify(said, "ü", key)
