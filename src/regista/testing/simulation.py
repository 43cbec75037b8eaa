"""simulate(): many seeded runs of a blueprint in a world where everything goes wrong."""

import hashlib
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from ..blueprint import StateMachineBlueprint
from ..schedules.schedule import Schedule
from .invariants import InvariantBroken
from .world import Faults, World

#: So many jobs do not all end badly by chance.
_ENOUGH = 30

TaskFunction = Callable[[dict[str, Any], random.Random], dict[str, Any]]


class SimulationReport(Struct, kw_only=True):
    """What was survived."""

    seeds: int = 0
    jobs: int = 0
    commits: int = 0
    #: Real seconds that it took, and virtual ones that passed.
    seconds: float = 0.0
    virtual_seconds: float = 0.0
    #: Fault → how often it fired.
    faults: Counter[str] = field(default_factory=Counter)
    #: Status → how many jobs ended so (children too). Look at it: a script that never works ends well, too.
    ends: Counter[str] = field(default_factory=Counter)
    #: What handlers and tasks complained of → how often.
    troubles: Counter[str] = field(default_factory=Counter)
    #: Seed → hash of its trace: the same seed gives the same one.
    traces: dict[int, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        rate = f"{self.jobs_per_second:.0f}/s"
        return f"{self.jobs} jobs over {self.seeds} seeds ({rate}) ended {dict(self.ends)} in spite of {dict(self.faults)}"

    @property
    def jobs_per_second(self) -> float:
        """Simulated jobs per real second."""
        return self.jobs / self.seconds if self.seconds else 0.0


class SimulationFailed(AssertionError):
    """A promise was broken; run `simulate(..., seeds=[seed])` to see it again, step by step."""

    def __init__(self, seed: int, cause: BaseException, trace: Sequence[str]) -> None:
        tail = "\n  ".join(trace[-40:])
        super().__init__(f"seed {seed}: {cause!r}\nthe end of its trace:\n  {tail}")
        self.seed = seed
        self.trace = list(trace)


def simulate(
    blueprint: StateMachineBlueprint | Sequence[StateMachineBlueprint],
    seeds: Iterable[int] = range(100),
    *,
    jobs: int = 8,
    instances: int = 2,
    workers: int = 3,
    faults: Faults | None = None,
    storm_s: float = 20.0,
    horizon_s: float = 600.0,
    tasks: dict[str, TaskFunction] | None = None,
    make_input: Callable[[random.Random], dict[str, Any]] = lambda chance: {},
    crash_at: tuple[int, str] | None = None,
    expect_finished: bool = True,
    schedules: Mapping[str, Schedule] | None = None,
) -> SimulationReport:
    """Run the blueprint (the first one; the others are its children) once per seed and check the promises.

    Each run has `instances` orchestrators over one store, `workers` workers and `jobs` clients, and
    `storm_s` virtual seconds of faults; then it gets quiet and everything must come to its end.
    `tasks` maps task types to functions (params, chance) → {"status", "data", "error"}; without one a
    task ends by chance, mostly well. `crash_at=(n, "before"|"during"|"after")` replaces random crashes
    by one at the nth commit. `schedules` tick at every instance while clients come. Unless `expect_finished` is False, one job of thirty or more must end as
    finished: a script that cannot work at all proves nothing.
    """
    blueprints = [blueprint] if isinstance(blueprint, StateMachineBlueprint) else list(blueprint)
    report = SimulationReport()
    began = time.perf_counter()
    quiet = logging.getLogger("regista")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL + 1)
    try:
        for seed in seeds:
            world = World(
                blueprints,
                seed,
                jobs=jobs,
                instances=instances,
                workers=workers,
                faults=faults or Faults(),
                storm_s=storm_s,
                horizon_s=horizon_s,
                tasks=tasks or {},
                make_input=make_input,
                crash_at=crash_at,
                schedules=schedules,
            )
            run(world, seed, report)
    finally:
        quiet.setLevel(level)
    report.seconds = time.perf_counter() - began
    if expect_finished and report.jobs >= _ENOUGH and not report.ends["finished"]:
        raise AssertionError(
            f"none of {report.jobs} jobs finished: they ended {dict(report.ends)}, and said "
            f"{dict(report.troubles.most_common(3))}. Hand in `make_input` and `tasks` that the script can work "
            "with and the blueprints of its children, or say expect_finished=False."
        )
    return report


def run(world: World, seed: int, report: SimulationReport) -> None:
    """One seed."""
    try:
        world.loop.run_until_complete(world.play())
    except (InvariantBroken, RuntimeError) as error:
        raise SimulationFailed(seed, error, world.trace) from error
    finally:
        world.close()
    report.seeds += 1
    report.jobs += len(world.acked)
    report.commits += world.commits
    report.virtual_seconds += world.loop.time()
    report.faults.update(world.fired)
    report.ends.update(world.ends)
    report.troubles.update(world.troubles)
    report.traces[seed] = hashlib.sha256("\n".join(world.trace).encode()).hexdigest()
