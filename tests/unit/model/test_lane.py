from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regista.model import Lane, Needs, Task, lane_name, lane_of, needs_of


def lane(**fields: Any) -> Lane:
    return Task(id="j_1_0", job_id="j", type="encode", **fields).lane


def test_a_task_waits_in_the_queue_of_its_type_unless_it_names_another() -> None:
    assert lane() == Lane("encode", "encode", "")
    assert lane(queue="night") == Lane("night", "encode", "")


def test_the_order_in_which_needs_are_written_does_not_matter() -> None:
    one = lane(requirements={"ram_gb": 4, "gpu": {"count": 1, "model": "A100"}})
    other = lane(requirements={"gpu": {"model": "A100", "count": 1}, "ram_gb": 4})
    assert (one, hash(one)) == (other, hash(other))


def test_each_need_makes_another_lane() -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"requirements": {"ram_gb": 4}},
        {"max_cost": 1.0},
        {"max_cost": 2.0},
        {"strategy": "cheapest"},
    ]
    assert len({lane(**fields) for fields in asked}) == len(asked)


def test_asking_for_the_default_is_asking_for_nothing() -> None:
    assert lane(strategy="default") == lane()


def test_who_asked_is_no_part_of_a_lane() -> None:
    assert lane(client="ann") == lane(client="bob", priority=3.0)


def test_a_lane_gives_its_needs_back() -> None:
    needs = Needs({"zone": ["a"], "ram_gb": 2.5}, 0.5, "best_value")
    there = lane(requirements=needs.requirements, max_cost=needs.max_cost, strategy=needs.strategy)
    assert needs_of(there) == needs
    assert needs_of(lane()) == Needs()


@given(st.builds(Lane, st.text(), st.text(), st.text()))
def test_a_lane_is_found_by_its_name(there: Lane) -> None:
    assert lane_of(lane_name(there)) == there
