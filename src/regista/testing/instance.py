"""Instance: one simulated orchestrator, and the line that connects it to the store."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..clock import IdGenerator
from ..model import Change, CommitOutcome
from ..orchestrator import OrchestratorEngine
from .clock import LoopClock

if TYPE_CHECKING:
    from .world import World


class Line:
    """An instance's connection to the store. When the instance dies, nothing goes through any more."""

    #: One store for all instances of a world.
    shared = True

    def __init__(self, world: "World") -> None:
        self._world = world
        self.dead = False
        self._deaf: list[Callable[[], None]] = []

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def subscribe(self, hear: Callable[[Any], None]) -> Callable[[], None]:
        deaf = self._world.store.subscribe(lambda hint: None if self.dead else hear(hint))
        self._deaf.append(deaf)
        return deaf

    def cut(self) -> None:
        """The process is gone."""
        self.dead = True
        for deaf in self._deaf:
            deaf()

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        world = self._world
        self._alive()
        world.commits += 1
        world.saw_changes(changes)
        boundary = world.crash_boundary()
        if boundary == "before":
            world.crash(self, "before commit")
            self._alive()
        if boundary == "during":
            # The store has it, the flush is under way, and the writer will never know.
            asyncio.get_running_loop().call_soon(world.crash, self, "during flush")
        outcomes = await world.store.commit(changes, instance)
        self._alive()
        if boundary == "after":
            world.crash(self, "after commit")
        self._alive()
        if world.chance.random() < world.faults.lost_answer and world.stormy:
            world.count("lost answer")
            return await world.store.commit(changes, instance)
        return outcomes

    def _alive(self) -> None:
        # A dead process does not even get an exception; this one ends its coroutine and nothing else.
        if self.dead:
            raise asyncio.CancelledError

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._world.store, name):
            raise AttributeError(name)  # some stores can more than others, and whoever asks looks first

        async def call(*arguments: Any, **named: Any) -> Any:
            self._alive()
            answer = await getattr(self._world.store, name)(*arguments, **named)
            self._alive()
            return answer

        return call


class Instance:
    """One orchestrator process."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.line = Line(world)
        self.engine = OrchestratorEngine(
            self.line,
            world.config(name),
            history=world.history,
            clock=LoopClock(world.loop, world.skew(name), world.clock),
            ids=IdGenerator(world.clock, random.Random(world.chance.getrandbits(64))),
        )
        self.engine.webhooks.transport = world.ears.of(self.line)
        for blueprint in world.blueprints:
            self.engine.register_blueprint(blueprint)
        self.engine.scheduler.take_over(world.schedules)
        self.engine.scheduler.registry.keep = 10_000  # so that every tick can be checked

    @property
    def alive(self) -> bool:
        return not self.line.dead
