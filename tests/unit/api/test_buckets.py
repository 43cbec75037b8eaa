"""Buckets fill evenly and never give more than they hold."""

from hypothesis import given
from hypothesis import strategies as st

from regista.api.buckets import Bucket, Portions
from regista.model import Rate


def test_a_bucket_gives_its_limit_at_once_and_fills_evenly() -> None:
    bucket = Bucket("submit", "ada", Rate(10, 5.0), 0.0, False)
    assert [bucket.spend(1, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert bucket.wait_s(1, 0.0) == 0.5
    assert not bucket.spend(1, 0.4)
    assert bucket.spend(1, 0.5)
    assert not bucket.spend(1, 0.5)


def test_a_refused_request_does_not_begin_the_window_anew() -> None:
    bucket = Bucket("submit", "ada", Rate(1, 1.0), 0.0, False)
    assert bucket.spend(1, 0.0)
    refused = [bucket.spend(1, tenth / 10) for tenth in range(1, 10)]
    assert not any(refused)
    assert bucket.spend(1, 1.01)


def test_more_than_it_ever_holds_comes_from_a_full_bucket_and_is_waited_for_afterwards() -> None:
    bucket = Bucket("submit", "ada", Rate(10, 10.0), 0.0, False)
    assert bucket.spend(30, 0.0)
    assert not bucket.spend(1, 20.0)
    assert bucket.spend(1, 21.0)
    assert not bucket.spend(30, 21.0)


def test_what_was_done_already_empties_it_and_no_more() -> None:
    bucket = Bucket("auth", "10.0.0.1", Rate(2, 2.0), 0.0, False)
    for _ in range(50):
        bucket.charge(1, 0.0)
    assert bucket.left() == 0
    assert bucket.spend(1, 1.0)


def test_it_tells_what_is_left_and_to_who_is_refused_in_both_vocabularies() -> None:
    bucket = Bucket("submit", "ada", Rate(100, 60.0), 0.0, False)
    bucket.spend(40, 0.0)
    brief = {"RateLimit-Limit": "100", "RateLimit-Remaining": "60", "RateLimit-Reset": "24"}
    assert dict(bucket.told()) == brief
    assert dict(bucket.told_in_full()) == {
        **brief,
        "RateLimit-Policy": '"submit";q=100;w=60',
        "RateLimit": '"submit";r=60;t=24',
    }


def test_a_full_one_can_be_forgotten() -> None:
    bucket = Bucket("read", "ada", Rate(2, 1.0), 0.0, False)
    assert bucket.is_full(0.0)
    bucket.spend(1, 0.0)
    assert not bucket.is_full(0.4)
    assert bucket.is_full(0.5)


@given(
    limit=st.integers(1, 50),
    window_s=st.floats(0.1, 100),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 20)), max_size=60),
)
def test_it_never_gives_more_than_a_full_bucket_and_what_came_since(
    limit: int, window_s: float, steps: list[tuple[float, int]]
) -> None:
    bucket = Bucket("submit", "ada", Rate(limit, window_s), 0.0, False)
    now, given_out = 0.0, 0
    for pause, n in steps:
        now += pause
        if bucket.spend(min(n, limit), now):
            given_out += min(n, limit)
        assert given_out <= limit + now * limit / window_s + 1e-6


def test_a_portion_is_a_tenth_and_at_most_a_thousand() -> None:
    assert [Portions(Rate(limit, 1.0)).size for limit in (1, 9, 100, 10**6)] == [1, 1, 10, 1000]
    portions = Portions(Rate(100, 1.0))
    assert portions.wish(0, 100) == 10
    assert portions.wish(25, 100) == 25
    assert portions.wish(500, 100) == 100
