from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.dispatch.classes import WorkerClass
from regista.dispatch.connected import CallbackConnection, ConnectedWorker, ConnectedWorkers
from regista.model import Profile, Task, Worker


def make_worker(id: str = "w1", **fields: Any) -> Worker:
    return Worker(**{"id": id, "skills": ("encode", "probe"), "capacity": 3, "session": 1, **fields})


def make_seat(worker: Worker | None = None, holding: Any = ()) -> ConnectedWorker:
    return ConnectedWorker(
        worker or make_worker(), CallbackConnection(lambda tasks: None, lambda attempts: None), holding
    )


def make_task(id: str, type: str = "encode") -> Task:
    return Task(id=id, job_id="j", type=type)


def seated(worker: Worker | None = None) -> tuple[ConnectedWorkers, ConnectedWorker]:
    seats, connected = ConnectedWorkers(), make_seat(worker)
    seats.add(connected)
    return seats, connected


def next_free(seats: ConnectedWorkers, skill: str = "encode") -> ConnectedWorker | None:
    (kind,) = seats.classes
    return kind.next_free(skill)


# Coming and going


def test_workers_that_are_alike_share_a_class() -> None:
    seats = ConnectedWorkers()
    for id in ("w1", "w2"):
        seats.add(make_seat(make_worker(id)))
    seats.add(make_seat(make_worker("w3", capacity=9)))
    assert [len(kind.members) for kind in seats.classes] == [2, 1]


def test_classes_are_told_of_when_they_come_and_go() -> None:
    told: list[tuple[str, WorkerClass]] = []
    seats = ConnectedWorkers(
        lambda kind: told.append(("joined", kind)), lambda kind: told.append(("left", kind))
    )
    for id in ("w1", "w2"):
        seats.add(make_seat(make_worker(id)))
    for id in ("w1", "w2"):
        seats.remove(id, 1)
    assert [word for word, _ in told] == ["joined", "left"]
    assert (len(seats), seats.classes, seats.open) == (0, [], {})


def test_a_newer_session_takes_the_place_of_the_older_one() -> None:
    seats, old = seated()
    new = make_seat(make_worker(session=2))
    seats.add(new)
    assert (seats.find("w1"), list(seats)) == (new, [new])
    assert old.worker_class is None
    assert seats.remove("w1", 1) is None
    assert seats.remove("w1", 2) is new


def test_what_a_worker_still_runs_takes_its_slots() -> None:
    assert make_seat(holding=["a", "b"]).free == 1
    limited = make_seat(make_worker(limits={"encode": 1}), {"a": "encode"})
    assert (limited.room_for("encode"), limited.room_for("probe")) == (0, 2)


# Slots


def test_a_slot_is_counted_from_what_is_held_so_releasing_twice_changes_nothing() -> None:
    seats, connected = seated()
    seats.hold(connected, "a", "encode")
    assert connected.free == 2
    assert seats.release(connected, "a") is True
    assert seats.release(connected, "a") is False
    assert connected.free == 3


def test_a_full_or_draining_seat_is_nobodys_head() -> None:
    seats, connected = seated()
    for attempt in "abc":
        assert next_free(seats) is connected
        seats.hold(connected, attempt, "encode")
    assert (next_free(seats), seats.open) == (None, {})
    seats.release(connected, "a")
    assert next_free(seats) is connected
    seats.drain(connected, True)
    assert (next_free(seats), connected.free) == (None, 0)
    seats.drain(connected, False)
    assert next_free(seats) is connected


def test_slots_that_the_store_is_asked_for_are_not_free() -> None:
    seats, connected = seated()
    seats.claim(connected, 2)
    assert connected.free == 1
    seats.claimed(connected, 2, [make_task("t")])
    assert (connected.free, list(connected.attempts)) == (2, ["t-1"])


def test_an_answer_for_a_seat_that_is_gone_changes_nobody_else() -> None:
    seats, connected = seated()
    seats.claim(connected, 2)
    seats.remove("w1", 1)
    seats.claimed(connected, 2, [make_task("t")])
    assert (seats.classes, seats.open) == ([], {})


def test_a_limit_of_one_skill_leaves_the_others_alone() -> None:
    seats, connected = seated(make_worker(limits={"encode": 1}))
    seats.hold(connected, "a", "encode")
    assert (next_free(seats, "encode"), next_free(seats, "probe")) == (None, connected)
    seats.release(connected, "a")
    assert next_free(seats, "encode") is connected


def test_the_head_of_a_limited_skill_is_a_seat_with_room_for_it() -> None:
    seats = ConnectedWorkers()
    workers = [make_worker(f"w{n}", limits={"encode": 1}) for n in range(2)]
    first, second = (make_seat(worker) for worker in workers)
    seats.add(first)
    seats.add(second)
    seats.hold(first, "a", "encode")
    for attempt in "bc":
        seats.hold(second, attempt, "probe")
    assert next_free(seats, "encode") is second
    assert next_free(seats, "probe") is first


# Credit


def test_credit_bounds_the_offers_below_the_slots() -> None:
    seats, connected = seated()
    seats.give(connected, 2)
    for attempt in "ab":
        assert next_free(seats) is connected
        seats.hold(connected, attempt, "encode")
    assert (next_free(seats), connected.credit) == (None, 0)
    seats.give(connected, None)
    assert next_free(seats) is connected
    assert connected.free == 1


def test_a_finished_task_gives_back_its_slot_and_no_credit() -> None:
    seats, connected = seated()
    seats.give(connected, 1)
    seats.hold(connected, "a", "encode")
    seats.sent(connected, ["a"])
    seats.release(connected, "a")
    assert (connected.credit, connected.free) == (0, 0)


def test_an_offer_that_was_never_sent_gives_its_credit_back() -> None:
    seats, connected = seated()
    seats.give(connected, 1)
    seats.hold(connected, "a", "encode")
    seats.release(connected, "a")
    assert (connected.credit, next_free(seats)) == (1, connected)


def test_credit_that_was_taken_back_meanwhile_is_not_given_back() -> None:
    seats, connected = seated()
    seats.give(connected, 2)
    seats.hold(connected, "a", "encode")
    seats.give(connected, 0)  # the poll was closed
    seats.release(connected, "a")
    assert (connected.credit, next_free(seats)) == (0, None)


def test_credit_that_was_raised_meanwhile_is_given_back_on_top() -> None:
    seats, connected = seated()
    seats.give(connected, 1)
    seats.hold(connected, "a", "encode")
    seats.give(connected, 1)
    seats.release(connected, "a")
    assert connected.credit == 2


def test_a_claim_uses_up_credit_for_what_it_got() -> None:
    seats, connected = seated()
    seats.give(connected, 2)
    seats.claim(connected, 2)
    assert connected.free == 0
    seats.claimed(connected, 2, [make_task("t")])
    assert (connected.credit, connected.free) == (1, 1)


def test_a_worker_that_polls_takes_nothing_before_its_first_poll() -> None:
    _, connected = seated(make_worker(transport="poll"))
    assert (connected.credit, connected.free) == (0, 0)


# Changes


def test_a_worker_that_changes_moves_to_another_class_with_what_it_holds() -> None:
    seats, connected = seated()
    seats.hold(connected, "a", "encode")
    seats.give(connected, 1)
    warm = replace(connected.worker, profile=Profile(hot=("encode",)))
    seats.change(connected, warm)
    (kind,) = seats.classes
    assert (kind.worker, kind.next_free("encode")) == (warm, connected)
    assert (list(connected.attempts), connected.credit) == (["a"], 1)


def test_a_change_that_no_task_can_see_keeps_the_class() -> None:
    seats, connected = seated()
    (kind,) = seats.classes
    seats.change(connected, replace(connected.worker, hostname="elsewhere"))
    assert seats.classes == [kind]
    assert connected.worker.hostname == "elsewhere"


_WHAT = ["hold", "free", "give", "drain", "sent", "gone", "look"]
_moves = st.lists(st.tuples(st.sampled_from(_WHAT), st.integers(0, 2)))


def check_heads(seats: ConnectedWorkers, all_seats: list[ConnectedWorker]) -> None:
    """Whoever asks gets somebody with room who holds the least; nobody when nobody has room."""
    for skill in ("encode", "probe"):
        open_seats = [one for one in all_seats if one.room_for(skill) > 0]
        found = next((kind.next_free(skill) for kind in seats.classes), None)
        assert (found in open_seats) if open_seats else found is None
        if found is not None:
            assert len(found.attempts) == min(len(one.attempts) for one in open_seats)
    free = [one for one in all_seats if one.free]
    assert list(seats.open) == (seats.classes if free else [])
    if free:
        slots = seats.classes[0].slots()
        assert (slots.workers, slots.free) == (len(free), sum(one.free for one in free))


@given(_moves)
def test_whatever_happens_a_class_knows_exactly_who_has_room(moves: list[tuple[str, int]]) -> None:
    seats = ConnectedWorkers()
    all_seats = [make_seat(make_worker(f"w{n}", limits={"probe": 1})) for n in range(3)]
    for connected in all_seats:
        seats.add(connected)
    for step, (what, number) in enumerate(moves):
        connected = all_seats[number]
        if what == "hold" and connected.free:
            skill = "probe" if connected.room_for("probe") and step % 2 else "encode"
            seats.hold(connected, str(step), skill)
        elif what == "free" and connected.attempts:
            seats.release(connected, next(iter(connected.attempts)))
        elif what == "sent":
            seats.sent(connected, list(connected.attempts))
        elif what == "give":
            seats.give(connected, None if step % 3 == 0 else step % 4)
        elif what == "drain":
            seats.drain(connected, not connected.draining)
        elif what == "gone":
            seats.remove(connected.worker.id, connected.worker.session)
            fresh = all_seats[number] = make_seat(connected.worker)
            seats.add(fresh)
        else:  # only now and then: in between, changes gather
            check_heads(seats, all_seats)
        assert all(one.credit is None or one.credit >= 0 for one in all_seats)
    check_heads(seats, all_seats)


def test_whoever_was_just_served_stands_behind_the_others_even_if_nobody_asked_meanwhile() -> None:
    # given
    seats, first = seated()
    second = make_seat(make_worker("w2"))
    seats.add(second)
    assert next_free(seats) is first
    # when: it has taken a task and done it before the next question
    seats.hold(first, "a-1", "encode")
    seats.release(first, "a-1")
    # then
    assert next_free(seats) is second


def test_a_class_that_is_gone_is_not_kept_for_the_sake_of_its_last_change() -> None:
    seats, connected = seated()
    seats.hold(connected, "a-1", "encode")

    seats.remove("w1", 1)

    assert (seats.classes, seats.open) == ([], {})
