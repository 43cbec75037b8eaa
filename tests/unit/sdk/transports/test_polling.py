"""RoundRobinPoller: whom it asks next, and for how many tasks."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from regista.sdk.transports import polling
from regista.sdk.transports.polling import PollingTransport, RoundRobinPoller


class Orchestrator:
    """Gives tasks as long as it has some."""

    def __init__(self, tasks: int = 0) -> None:
        self.tasks = tasks
        self.is_draining = False
        self.polls: list[tuple[int, float]] = []

    async def poll(self, limit: int, timeout_s: float) -> int:
        self.polls.append((limit, timeout_s))
        given = min(limit, self.tasks)
        self.tasks -= given
        await asyncio.sleep(0 if given else timeout_s)
        return given


async def run(seconds: float, free: int, *orchestrators: tuple[Orchestrator, int]) -> None:
    """Poll them for a while; a task is over at once."""
    transports = cast("Any", list(orchestrators))
    poller = RoundRobinPoller(lambda: cast("list[tuple[PollingTransport, int]]", transports), lambda: free)
    try:
        async with asyncio.timeout(seconds):
            await poller.run()
    except TimeoutError:
        pass


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_ROUND_S", 0.05)
    monkeypatch.setattr(polling, "_BRIEF_ROUND_S", 0.005)


async def test_busy_orchestrators_are_polled_by_weight() -> None:
    heavy, light = Orchestrator(10**9), Orchestrator(10**9)
    await run(0.1, 1, (heavy, 3), (light, 1))

    count = Counter({"heavy": len(heavy.polls), "light": len(light.polls)})
    assert count["light"] > 10
    assert count["heavy"] == pytest.approx(3 * count["light"], abs=4)


async def test_an_orchestrator_without_tasks_is_asked_now_and_then_while_another_has_some() -> None:
    busy, idle = Orchestrator(10**9), Orchestrator()
    await run(0.3, 4, (busy, 1), (idle, 1))

    assert 2 <= len(idle.polls) <= 7
    assert {timeout_s for _, timeout_s in idle.polls[1:]} == {0.005}
    assert len(busy.polls) > 10 * len(idle.polls)


async def test_the_limit_is_the_number_of_free_slots_and_nothing_is_asked_without_one() -> None:
    some, none = Orchestrator(5), Orchestrator(5)
    await run(0.02, 3, (some, 1))
    await run(0.02, 0, (none, 1))

    assert {limit for limit, _ in some.polls} == {3}
    assert none.polls == []


async def test_an_orchestrator_that_drains_is_not_asked() -> None:
    draining = Orchestrator(5)
    draining.is_draining = True
    await run(0.02, 3, (draining, 1))

    assert draining.polls == []
