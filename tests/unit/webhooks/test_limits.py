"""ReceiverLimits: slow receivers keep only their own deliveries waiting."""

from hypothesis import given
from hypothesis import strategies as st

from regista.testing.clock import Clock
from regista.webhooks.limits import ReceiverLimits


def limits(total: int = 32, clock: Clock | None = None) -> ReceiverLimits:
    return ReceiverLimits(total, (clock or Clock()).elapsed)


def attempt(
    of: ReceiverLimits, receiver: str, client: str = "ada", took_s: float = 0.01, answered: bool = True
) -> None:
    assert of.try_acquire(receiver, client)
    of.observe(receiver, client, answered=answered, took_s=took_s)
    of.release(receiver, client)


def acquired(of: ReceiverLimits, receiver: str, client: str = "ada", number: int = 100) -> int:
    return sum(of.try_acquire(receiver, client) for _ in range(number))


def test_a_quick_receiver_gets_four_slots_an_unknown_or_slow_one_one() -> None:
    of = limits()
    attempt(of, "quick")
    attempt(of, "slow", took_s=2.0)
    attempt(of, "away", answered=False)
    assert [acquired(of, name) for name in ("quick", "unknown", "slow", "away")] == [4, 1, 1, 1]


def test_a_slow_receiver_is_quick_again_after_one_quick_answer() -> None:
    of = limits()
    attempt(of, "a", took_s=9.0)
    assert not of.is_quick("a", "ada")
    attempt(of, "a")
    assert of.is_quick("a", "ada")
    assert acquired(of, "a") == 4
    assert of.retry_in_s("a", "ada") < 1


def test_one_client_gets_half_of_the_slots() -> None:
    of = limits()
    for number in range(10):
        attempt(of, f"a{number}")
        attempt(of, f"b{number}", "bob")
    assert sum(acquired(of, f"a{number}") for number in range(10)) == 16
    assert sum(acquired(of, f"b{number}", "bob") for number in range(10)) == 16
    assert of.full
    assert not of.try_acquire("c", "eve")


def test_receivers_that_hang_leave_slots_for_those_of_the_same_client_that_answer() -> None:
    of = limits()
    attempt(of, "good")
    hanging = [name for name in map(str, range(100)) if of.try_acquire(name, "ada")]
    assert len(hanging) == 8
    for _ in range(100):
        attempt(of, "good")
    assert acquired(of, "good") == 4


def test_slow_receivers_leave_half_of_their_slots_to_unknown_ones() -> None:
    of = limits()
    names = [f"slow-{number}" for number in range(20)]
    for name in names:
        attempt(of, name, answered=False)
    assert sum(of.try_acquire(name, "ada") for name in names) == 4
    assert sum(of.try_acquire(f"new-{number}", "ada") for number in range(20)) == 4


def test_a_slow_path_of_one_client_does_not_slow_down_another_client_at_the_same_host() -> None:
    of = limits()
    attempt(of, "shared", "ada")
    attempt(of, "shared", "eve", answered=False)
    assert (acquired(of, "shared", "ada"), acquired(of, "shared", "eve")) == (4, 1)


def test_deliveries_without_a_slot_come_back_one_after_the_other_as_slots_become_free() -> None:
    of = limits()
    attempt(of, "a", took_s=0.1)
    delays = [of.retry_in_s("a", "ada") for _ in range(100)]
    assert delays == sorted(delays)
    assert len(set(delays)) == 100
    assert (delays[0] < 0.6, 2.5 < delays[-1] < 4) == (True, True)


def test_the_backoff_of_a_slow_receiver_doubles_and_no_delay_is_longer_than_a_minute() -> None:
    of = limits()
    longest = []
    for _ in range(12):
        attempt(of, "a", answered=False)
        longest.append(max(of.retry_in_s("a", "ada") for _ in range(50)))
    assert longest[:5] == sorted(longest[:5])
    assert 1 <= longest[0] <= 2
    assert 55 < longest[-1] <= 60
    busy = limits()
    attempt(busy, "b", took_s=1.9)
    delays = [busy.retry_in_s("b", "ada") for _ in range(10_000)]
    assert max(delays) <= 60
    assert len(set(delays)) > 5_000


def test_idle_receivers_are_forgotten() -> None:
    clock = Clock()
    of = limits(clock=clock)
    for number in range(5000):
        attempt(of, f"r-{number}")
    assert of.is_quick("r-4999", "ada")
    assert not of.is_quick("r-0", "ada")


STEPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y"]), st.integers(0, 3)), max_size=200
)


@given(STEPS)
def test_whatever_happens_no_limit_is_passed_and_every_slot_comes_back(
    steps: list[tuple[str, str, int]],
) -> None:
    of = limits(8)
    held: list[tuple[str, str]] = []
    for receiver, client, what in steps:
        key = (receiver, client)
        if what == 0 and key in held:
            of.release(*key)
            held.remove(key)
        elif what == 1:
            of.observe(*key, answered=True, took_s=0.1)
        elif what == 2:
            of.observe(*key, answered=False, took_s=5.0)
        elif of.try_acquire(*key):
            held.append(key)
        assert len(held) <= 8
        assert all(held.count(each) <= 4 for each in held)
        assert all(sum(client == name for _, name in held) <= 4 for client in "xy")
    for key in held:
        of.release(*key)
    for key in {*held, ("new", "x")}:
        of.observe(*key, answered=True, took_s=0.1)
        assert acquired(of, *key) == 4
        for _ in range(4):
            of.release(*key)
