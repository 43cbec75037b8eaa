"""ContextFactory: what a decision about a job depends on, for one moment."""

import random
from typing import NamedTuple

from msgspec.structs import replace

from ...blueprint import StateMachineBlueprint
from ...blueprint.registry import BlueprintRegistry
from ...clock import Clock
from ...machine.step import DecisionContext, MachineSettings
from ...model import Job


class VersionContext(NamedTuple):
    """The decision context of one blueprint version, and its handlers if this instance has loaded it."""

    decision: DecisionContext
    blueprint: StateMachineBlueprint | None


class ContextFactory:
    """Builds decision contexts. The executor keeps one context per blueprint version during a turn."""

    def __init__(
        self, registry: BlueprintRegistry, clock: Clock, source: random.Random, settings: MachineSettings
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._random = source
        self._settings = settings
        self._by_version: dict[tuple[str, str] | None, VersionContext] = {}

    def new(self, job: Job) -> DecisionContext:
        """A context of its own for one decision about this job."""
        return self.with_jitter(self._build(job).decision)

    def of_turn(self, job: Job | None) -> VersionContext:
        """The context that all jobs of one blueprint version share until `new_turn`."""
        version = (job.blueprint, job.version) if job is not None else None
        found = self._by_version.get(version)
        if found is None:
            found = self._by_version[version] = self._build(job)
        return found

    def new_turn(self) -> None:
        """Forgets the shared contexts: time has passed."""
        self._by_version.clear()

    def with_jitter(self, context: DecisionContext) -> DecisionContext:
        """The context with a random number of its own, so that retries of many jobs do not synchronise."""
        return replace(context, random=self._random.random())

    def _build(self, job: Job | None) -> VersionContext:
        blueprint = None if job is None else self._registry.find(job.blueprint, job.version)
        decision = DecisionContext(
            now=self._clock.now(),
            graph=None if blueprint is None else blueprint.graph,
            find_graph=self._registry.newest_graph,
            settings=self._settings,
        )
        return VersionContext(decision, blueprint)
