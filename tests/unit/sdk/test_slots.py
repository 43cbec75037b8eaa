"""Free slots, shared among orchestrators."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from regista.sdk.slots import Slots


class Crowd:
    """A worker with some orchestrators, whose offers are made by hand."""

    def __init__(self, capacity: int, *weights: int) -> None:
        self.capacity = capacity
        self.running = 0
        self.slots = Slots(capacity, lambda: self.running)
        self.members = [Member(self, weight) for weight in weights]

    def join(self) -> "Crowd":
        for member in self.members:
            member.credit += self.slots.join(member)
        return self

    def settle(self) -> None:
        for _ in range(10):
            self.slots.rebalance()
            for member in self.members:
                member.answer()

    @property
    def promised(self) -> int:
        return self.running + sum(member.credit for member in self.members)


class Member:
    """An orchestrator, as it counts itself."""

    def __init__(self, crowd: Crowd, weight: int) -> None:
        self._crowd = crowd
        self.weight = weight
        self.credit = 0
        self._asked = 0

    def grant(self, more: int) -> None:
        self.credit += more

    def ask_back(self, some: int) -> None:
        self._asked = some

    def answer(self) -> None:
        if self._asked:
            returned, self._asked = min(self._asked, self.credit), 0
            self.credit -= returned
            self._crowd.slots.returned(self, returned)

    def offer(self) -> bool:
        if not self.credit:
            return False
        self.credit -= 1
        self._crowd.slots.spent(self, 1)
        self._crowd.running += 1
        return True


def test_everything_is_given_out_by_weight() -> None:
    crowd = Crowd(12, 2, 1).join()
    crowd.settle()

    assert crowd.promised == 12
    assert [member.credit for member in crowd.members] == [8, 4]


def test_a_slot_that_is_free_again_goes_to_whoever_has_used_up_its_credit() -> None:
    crowd = Crowd(4, 1, 1).join()
    crowd.settle()
    busy, idle = crowd.members
    while busy.offer():
        pass

    crowd.running -= 1
    crowd.slots.share_out()

    assert (busy.credit, idle.credit) == (1, 2)


def test_unused_credit_moves_to_the_busy_one_until_one_is_left() -> None:
    crowd = Crowd(10, 1, 1).join()
    crowd.settle()
    busy, idle = crowd.members
    for _ in range(10):
        while busy.offer():
            pass
        crowd.settle()

    assert (crowd.running, idle.credit) == (9, 1)


def test_a_single_slot_wanders_between_two() -> None:
    crowd = Crowd(1, 1, 1).join()
    seen = set()
    for _ in range(10):
        seen.add(tuple(member.credit for member in crowd.members))
        crowd.slots.rebalance()
        for member in crowd.members:
            member.answer()

    assert seen == {(1, 0), (0, 1)}


def test_what_became_free_unnoticed_is_granted_when_the_next_one_joins() -> None:
    crowd = Crowd(8, 1, 1)
    first, second = crowd.members
    first.credit += crowd.slots.join(first)
    while first.offer():
        pass
    crowd.running = 0
    second.credit += crowd.slots.join(second)
    assert first.credit == crowd.slots.credit_of(first) > 0
    assert second.credit == crowd.slots.credit_of(second) > 0
    assert crowd.promised == 8


def test_the_credit_of_one_that_leaves_is_for_the_others() -> None:
    crowd = Crowd(6, 1, 1).join()
    crowd.settle()
    gone, stays = crowd.members

    crowd.slots.leave(gone)

    assert stays.credit == 6
    assert crowd.slots.credit_of(gone) == 0


@given(
    capacity=st.integers(1, 20),
    weights=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.sampled_from(["offer", "end", "tick", "answer"]), st.integers(0, 3))),
)
def test_never_more_is_promised_than_there_is(
    capacity: int, weights: list[int], steps: list[tuple[str, int]]
) -> None:
    crowd = Crowd(capacity, *weights).join()
    for what, number in steps:
        member = crowd.members[number % len(crowd.members)]
        if what == "offer":
            member.offer()
        elif what == "answer":
            member.answer()
        elif what == "tick":
            crowd.slots.rebalance()
        elif crowd.running:
            crowd.running -= 1
            crowd.slots.share_out()
        assert crowd.promised <= capacity


@pytest.mark.parametrize(("capacity", "weights"), [(2, (2, 1)), (3, (3, 1)), (4, (1000, 1)), (1, (50, 1))])
def test_however_little_it_weighs_one_that_comes_later_gets_a_slot_soon(
    capacity: int, weights: tuple[int, int]
) -> None:
    crowd = Crowd(capacity, *weights).join()
    heavy, light = crowd.members
    assert heavy.credit == capacity

    for _ in range(2):
        crowd.slots.rebalance()
        heavy.answer()

    assert light.credit == 1


def test_one_that_does_not_answer_does_not_keep_another_from_being_asked() -> None:
    crowd = Crowd(9, 1, 1, 1)
    silent, second, busy = crowd.members
    for member in (silent, second):
        member.credit += crowd.slots.join(member)
    crowd.settle()
    busy.credit += crowd.slots.join(busy)
    for _ in range(3):
        crowd.slots.rebalance()
        second.answer()  # and the other one never does
    assert busy.credit > 0


class SlotsMachine(RuleBasedStateMachine):
    """Orchestrators come and go, offer, and answer late; the worker's tasks end when they like."""

    @initialize(capacity=st.integers(1, 6))
    def begin(self, capacity: int) -> None:
        self.crowd = Crowd(capacity)
        self.members = self.crowd.members

    @rule(weight=st.sampled_from([1, 2, 7, 10**6]))
    def join(self, weight: int) -> None:
        if len(self.members) < 4:
            member = Member(self.crowd, weight)
            self.members.append(member)
            member.credit += self.crowd.slots.join(member)

    @rule(number=st.integers(0, 3))
    def leave(self, number: int) -> None:
        if number < len(self.members):
            gone = self.members.pop(number)
            self.crowd.slots.leave(gone)
            gone.answer()  # too late
            assert self.crowd.slots.credit_of(gone) == 0

    @rule(number=st.integers(0, 3))
    def offer(self, number: int) -> None:
        if number < len(self.members):
            self.members[number].offer()

    @rule(number=st.integers(0, 3))
    def answer(self, number: int) -> None:
        if number < len(self.members):
            self.members[number].answer()

    @rule()
    def tick(self) -> None:
        self.crowd.slots.rebalance()

    @rule()
    def end(self) -> None:
        if self.crowd.running:
            self.crowd.running -= 1
            self.crowd.slots.share_out()

    @rule(number=st.integers(0, 3))
    def who_has_work_gets_it_done(self, number: int) -> None:
        """When all else is over, one that has work is given a slot within a few looks."""
        if number < len(self.members):
            self.crowd.running = 0
            self.crowd.slots.share_out()
            for _ in range(2 * len(self.members) + 2):
                self.crowd.slots.rebalance()
                for member in self.members:
                    member.answer()
                if self.members[number].offer():
                    return
            raise AssertionError([member.credit for member in self.members])

    @rule()
    def nobody_keeps_several_while_another_has_none(self) -> None:
        for _ in range(2 * len(self.members) + 6):
            self.crowd.slots.rebalance()
            for member in self.members:
                member.answer()
        credits = sorted(member.credit for member in self.members)
        assert not credits or credits[0] > 0 or credits[-1] < 2, credits

    @invariant()
    def every_slot_is_somewhere_and_nowhere_twice(self) -> None:
        if not hasattr(self, "crowd"):
            return
        assert all(member.credit == self.crowd.slots.credit_of(member) for member in self.members)
        assert self.crowd.promised <= self.crowd.capacity
        if self.members:
            assert self.crowd.promised == self.crowd.capacity


TestSlotsMachine = SlotsMachine.TestCase
TestSlotsMachine.settings = settings(max_examples=60, stateful_step_count=30)
