"""How long a worker waits before it tries again."""

import pytest

from regista.sdk import connection as link


def test_pauses_grow_up_to_the_last_one() -> None:
    pauses = [link.pause_s(tries, None) for tries in range(1, link._SLOW + 1)]

    assert pauses == sorted(pauses)
    assert pauses[0] < 0.1
    assert pauses[-1] == link._LAST_PAUSE_S


@pytest.mark.parametrize("lease_s", [3.0, 30.0])
def test_who_holds_something_tries_several_times_within_a_lease(lease_s: float) -> None:
    # When an orchestrator is back, what a worker holds is lost after one lease without a word.
    pauses = [link.pause_s(tries, lease_s) for tries in range(1, link._SLOW)]

    assert max(pauses) <= lease_s / 6


def test_who_is_refused_comes_back_slowly_whatever_it_holds() -> None:
    assert link.pause_s(link._SLOW, 3.0) == link._LAST_PAUSE_S


def test_who_starts_looks_for_a_second_whether_somebody_listens_and_then_less_and_less_often() -> None:
    pauses = [link.pause_s(tries, None, link._QUICK_TRIES) for tries in range(1, link._SLOW + 1)]

    assert pauses == sorted(pauses)
    assert sum(pauses[: link._QUICK_TRIES]) == pytest.approx(1.0)
    assert pauses[-1] == link._LAST_PAUSE_S
