from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regista.model import MatchOptions, QueueKey, Task, match_options, parse_queue_key, queue_key_text


def queue_key(**fields: Any) -> QueueKey:
    return Task(id="j_1_0", job_id="j", type="encode", **fields).queue_key


def test_a_task_waits_in_the_queue_of_its_type_unless_it_names_another() -> None:
    assert queue_key() == QueueKey("encode", "encode", "")
    assert queue_key(queue="night") == QueueKey("night", "encode", "")


def test_the_order_in_which_needs_are_written_does_not_matter() -> None:
    one = queue_key(requirements={"ram_gb": 4, "gpu": {"count": 1, "model": "A100"}})
    other = queue_key(requirements={"gpu": {"model": "A100", "count": 1}, "ram_gb": 4})
    assert (one, hash(one)) == (other, hash(other))


def test_each_need_makes_another_lane() -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"requirements": {"ram_gb": 4}},
        {"max_cost": 1.0},
        {"max_cost": 2.0},
        {"strategy": "cheapest"},
    ]
    assert len({queue_key(**fields) for fields in asked}) == len(asked)


def test_asking_for_the_default_is_asking_for_nothing() -> None:
    assert queue_key(strategy="default") == queue_key()


def test_who_asked_is_no_part_of_a_lane() -> None:
    assert queue_key(client="ann") == queue_key(client="bob", priority=3.0)


def test_a_lane_gives_its_needs_back() -> None:
    needs = MatchOptions({"zone": ["a"], "ram_gb": 2.5}, 0.5, "best_value")
    there = queue_key(requirements=needs.requirements, max_cost=needs.max_cost, strategy=needs.strategy)
    assert match_options(there) == needs
    assert match_options(queue_key()) == MatchOptions()


@given(st.builds(QueueKey, st.text(), st.text(), st.text()))
def test_a_lane_is_found_by_its_name(there: QueueKey) -> None:
    assert parse_queue_key(queue_key_text(there)) == there
