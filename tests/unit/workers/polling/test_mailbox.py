"""Tasks wait for polls, and polls for tasks. FENCES 10."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from regista.model import Task
from regista.workers.polling.mailbox import TaskMailbox


def task(number: int) -> Task:
    return Task(id=f"j_1_{number}", job_id="j", type="work")


def numbers(tasks: list[Task]) -> list[int]:
    return [int(task.id.rpartition("_")[2]) for task in tasks]


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_task_goes_to_the_oldest_open_poll() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        first, second = box.open(1), box.open(1)
        box.put([task(0)])
        await first.wait(1)
        assert (numbers(first.tasks), numbers(second.tasks), box.wanted) == ([0], [], 1)

    play(scenario())


def test_without_a_poll_it_waits_for_the_next_one() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        box.put([task(0), task(1), task(2)])
        poll = box.open(2)
        await poll.wait(0)
        assert (numbers(poll.tasks), len(box)) == ([0, 1], 1)

    play(scenario())


def test_a_poll_that_went_away_with_a_task_in_hand_leaves_it_for_the_next_one_before_all_others() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        poll = box.open(1)
        box.put([task(0), task(1)])
        assert box.close(poll, delivered=False) == []
        again = box.open(2)
        assert numbers(again.tasks) == [0, 1]

    play(scenario())


def test_what_a_dead_poll_had_goes_to_one_that_is_open() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        dead, alive = box.open(1), box.open(1)
        box.put([task(0)])
        box.close(dead, delivered=False)
        assert numbers(alive.tasks) == [0]

    play(scenario())


def test_what_left_with_its_poll_is_gone() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        poll = box.open(1)
        box.put([task(0)])
        assert box.leaving == [task(0).attempt_id]
        assert numbers(box.close(poll, delivered=True)) == [0]
        assert (len(box), box.leaving) == (0, [])

    play(scenario())


def test_a_poll_whose_time_is_up_gets_nothing_any_more() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        poll = box.open(1)
        await poll.wait(0.01)
        box.put([task(0)])  # while the answer "nothing" is being written
        assert (poll.tasks, len(box), box.wanted) == ([], 1, 0)

    play(scenario())


def test_everybody_can_be_sent_home() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        polls = [box.open(1), box.open(5)]
        assert box.wanted == 6
        box.wake_all()
        for poll in polls:
            await poll.wait(60)
        assert box.wanted == 0

    play(scenario())


def test_what_waits_can_be_taken_out_once() -> None:
    async def scenario() -> None:
        box = TaskMailbox()
        box.put([task(0), task(1)])
        attempt = task(0).attempt_id
        assert numbers(box.take([attempt, "unknown"])) == [0]
        assert box.take([attempt]) == []
        assert numbers(box.empty()) == [1]
        assert len(box) == 0

    play(scenario())


def test_what_is_not_kept_is_dropped_and_the_order_stays() -> None:
    box = TaskMailbox()
    box.put([task(n) for n in range(4)])
    box.keep({task(n).attempt_id for n in (3, 1, 9)})
    assert numbers(box.empty()) == [1, 3]
