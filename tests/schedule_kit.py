"""What tests of schedules share: two blueprints, and a look at one schedule."""

from typing import Any

from regista.blueprint import ActionFactory, JobContext
from regista.schedules.registry import StoredSchedule
from regista.schedules.schedule import Schedule
from regista.testing.orchestrator import TestOrchestrator
from tests.support import script


def at_once(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


def nap(context: JobContext, actions: ActionFactory) -> None:
    actions.sleep(context.initial_data["seconds"], then="done")


def kit_of(**more: Any) -> TestOrchestrator:
    return TestOrchestrator(script(at_once, "done", name="quick"), script(nap, "done", name="nap"), **more)


def every(seconds: int = 60, blueprint: str = "quick", **more: Any) -> Schedule:
    return Schedule(blueprint=blueprint, interval_seconds=seconds, **more)


def create(kit: TestOrchestrator, schedule: Schedule, name: str = "s") -> StoredSchedule:
    return kit.call(lambda: kit.director.scheduler.registry.create(name, schedule))


def entry_of(kit: TestOrchestrator, name: str = "s") -> StoredSchedule:
    return kit.call(lambda: kit.director.scheduler.registry.get(name))


def told(kit: TestOrchestrator, name: str = "s") -> list[tuple[str, str | None]]:
    return [(record.kind, record.reason) for record in entry_of(kit, name).state.records]


def run_once(kit: TestOrchestrator) -> int:
    return kit.call(lambda: kit.director.scheduler.run_once(kit.now)).done
