#!/usr/bin/env python3
"""Golden traces: the same seeds must give the same events before and after a refactoring.

Run from the project's root (it uses .venv-dev when the Python that is called lacks the dependencies):

    python tests/simulation/golden_trace.py                    # compare with golden_trace.json
    python tests/simulation/golden_trace.py --only calm crash  # some kinds only
    python tests/simulation/golden_trace.py --against HEAD~1   # recompute there, show the first difference
    python tests/simulation/golden_trace.py --write FILE       # store the digests of this checkout
    python tests/simulation/golden_trace.py --compare FILE     # compare with digests stored elsewhere
    python tests/simulation/golden_trace.py --show calm/3      # print one trace

Three kinds of traces:

  storm   simulate() with every fault: two instances, three workers, crashes, power cuts. All events of all jobs with
          their virtual times. Equal to the byte after a pure rename or move. One more await, one more random number or
          one more write changes it: then say so in the commit, check `calm` and `crash`, and write the file anew.
  calm    simulate() without faults. What happens depends on the job's input alone: times, workers and the order between
          parallel branches are left out. All seeds give the same trace, so another schedule of the loop does, too.
  crash   TestOrchestrator: each scenario without a crash, and with a power cut before and after the first write that
          carries each of its event types. Times and workers are left out.

Only public names are used: `regista`, `regista.testing.{simulate, TestOrchestrator, invariants}`, event types and fields.
The one line that may need a new name after the redesign is marked ADAPT.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd() / "src"))  # the checkout one stands in, not the one that is installed

try:
    import msgspec
except ModuleNotFoundError:
    own = Path.cwd() / ".venv-dev" / "bin" / "python"
    if not own.exists():
        raise SystemExit(
            "expected the project's Python: run `make venv` in the project's root first"
        ) from None
    os.execv(own, [str(own), *sys.argv])

import regista.testing
from regista import ActionFactory, Event, Job, JobContext, RetryPolicy, StateMachineBlueprint

# ADAPT: `check_history(graphs, events, jobs)` sees all events of a seed. It is replaced before `simulate` is imported.
_HOOK = "check_history"
_recorded: list[tuple[Mapping[str, list[Event]], Mapping[str, Job]]] = []


def _install_hook() -> None:
    original = getattr(regista.testing.invariants, _HOOK)

    def record(graphs: Any, events: Mapping[str, list[Event]], jobs: Mapping[str, Job]) -> None:
        _recorded.append((events, jobs))
        original(graphs, events, jobs)

    setattr(regista.testing.invariants, _HOOK, record)


_install_hook()

from regista.testing import TestOrchestrator, simulate  # noqa: E402  # after the hook, so that it is used

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden_trace.json"
STORM_SEEDS, SHAKY_SEEDS, SCHEDULE_SEEDS, CALM_SEEDS = range(40), range(20), range(10), range(12)
#: Texts for people: they may be reworded.
PROSE = ("message",)
#: What depends on the schedule of the event loop.
TIMING = ("at", "duration_ms", "worker_id", "seq")
KINDS = ("storm", "calm", "crash")
Traces = dict[str, list[str]]


# -- blueprints: together they use every action ------------------------------------------------------


def everything() -> list[StateMachineBlueprint]:
    """A task, a fan-out, a timer, an approval and a child; which way it goes is the tasks' and the person's choice."""
    main, child = StateMachineBlueprint("everything"), StateMachineBlueprint("child")

    @main.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        way = {"success": "split", "PERMANENT_ERROR": "split"}
        actions.dispatch_task("prepare", {}, way, requirements={"ram_gb": 8})

    @main.handler_for("split")
    def split(context: JobContext, actions: ActionFactory) -> None:
        for index in range(4):
            strategy = ("default", "round_robin", "least_connections", "cheapest")[index]
            actions.dispatch_task("part", {"index": index}, {"success": "join"}, dispatch_strategy=strategy)

    @main.aggregator_for("join")
    def join(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["parts"] = len(context.aggregation_results)
        actions.sleep(0.5, then="ask")

    @main.handler_for("ask")
    def ask(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("go on?", {"yes": "delegate", "no": "failed"})

    @main.handler_for("delegate")
    def delegate(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("child", {}, {"success": "done", "cancelled": "done"})

    @main.handler_for("failed", is_end=True)
    def failed(context: JobContext, actions: ActionFactory) -> None:
        return None

    @main.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["parts"])

    @child.handler_for("begin", is_start=True)
    def begin(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task(
            "help", {}, {"success": "end"}, result_timeout=30, requirements={"zone": "eu"}, max_cost=1.5
        )

    @child.handler_for("end", is_end=True)
    def end(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result("helped")

    return [main, child]


def shaky() -> StateMachineBlueprint:
    """Its handler raises three times of four: retries, quarantine, release."""
    blueprint = StateMachineBlueprint("shaky")
    calls = itertools.count()

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        if next(calls) % 4:
            raise RuntimeError("not today")
        actions.transition_to("done")

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    return blueprint


def one_task(**options: Any) -> StateMachineBlueprint:
    """The shortest useful job."""
    blueprint = StateMachineBlueprint("one_task")
    way = options.pop("transitions", {"success": "done"})

    @blueprint.handler_for("start", is_start=True, targets=["done", "late"])
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {}, way, **options)

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history)

    @blueprint.handler_for("late", is_end=True)
    def late(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result("late")

    return blueprint


#: How the tasks of a calm job end; its number chooses one.
WAYS = (
    "success",
    "transient",
    "permanent",
    "partial",
    "branch_fails",
    "handler_raises_once",
    "fails",
    "no_child",
)


def by_number() -> list[StateMachineBlueprint]:
    """What happens to a job follows from its number, and from nothing else."""
    main, child = StateMachineBlueprint("by_number"), StateMachineBlueprint("by_number_child")
    raised: set[int] = set()
    quick = RetryPolicy(first_s=0.05, jitter=0)

    @main.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        number = context.initial_data["n"]
        way = {"success": "split", "partial": "split", "PERMANENT_ERROR": "end_badly"}
        actions.set_search_attributes({"number": number})
        actions.dispatch_task(
            "prepare", {"n": number, "way": context.initial_data["way"]}, way, retry=quick, priority=number
        )

    @main.handler_for("split").when("context.initial_data.way == 'fails'")
    def give_up(context: JobContext, actions: ActionFactory) -> None:
        actions.fail("as its number says", code="GIVEN_UP")

    @main.handler_for("split")
    def split(context: JobContext, actions: ActionFactory) -> None:
        number, way = context.initial_data["n"], context.initial_data["way"]
        if way == "handler_raises_once" and number not in raised:
            raised.add(number)
            raise RuntimeError("once")
        for index in range(3):
            actions.dispatch_task(
                "part", {"n": number, "way": way, "index": index}, {"success": "join"}, retry=quick
            )

    @main.aggregator_for("join")
    def join(context: JobContext, actions: ActionFactory) -> None:
        results = context.aggregation_results.values()
        context.state_history["parts"] = sorted(str(result.get("status")) for result in results)
        actions.sleep(0.5, then="ask")

    @main.handler_for("ask")
    def ask(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval(
            "go on?", {"yes": "done" if context.initial_data["way"] == "no_child" else "delegate"}
        )

    @main.handler_for("delegate")
    def delegate(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("by_number_child", {"n": context.initial_data["n"]}, {"success": "done"})

    @main.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["parts"])

    @main.handler_for("end_badly", is_end=True, outcome="failed")
    def end_badly(context: JobContext, actions: ActionFactory) -> None:
        return None

    @child.handler_for("begin", is_start=True)
    def begin(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("help", {"n": context.initial_data["n"]}, {"success": "end"}, queue="helpers")

    @child.handler_for("end", is_end=True)
    def end(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result("helped")

    return [main, child]


def by_number_tasks() -> dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]]:
    """The task functions: a transient error once for each task that has one."""
    failed: set[tuple[int, int]] = set()

    def work(params: dict[str, Any], chance: Any) -> dict[str, Any]:
        way, index = params.get("way", "success"), params.get("index")
        if way == "transient" and (params["n"], index or 0) not in failed:
            failed.add((params["n"], index or 0))
            return {"status": "failure", "error": "TRANSIENT_ERROR"}
        if way == "permanent" or (way == "branch_fails" and index == 1):
            return {"status": "failure", "error": "PERMANENT_ERROR"}
        if way == "partial" and index is None:
            return {"status": "partial", "data": {"half": params["n"]}}
        return {"status": "success", "data": {f"from_{index}": params["n"]}}

    return {"prepare": work, "part": work, "help": work}


# -- traces ------------------------------------------------------------------------------------------


def collect(kinds: Collection[str] = KINDS) -> Traces:
    """Every trace of this checkout of these kinds."""
    logging.disable(logging.CRITICAL)
    traces: Traces = {}
    if "storm" in kinds:
        for seed in STORM_SEEDS:
            traces[f"storm/{seed}"] = exact(partial(simulate, everything(), seeds=[seed]))
        for seed in SHAKY_SEEDS:
            options: dict[str, Any] = {"jobs": 12, "storm_s": 10, "expect_finished": False}
            traces[f"storm/shaky-{seed}"] = exact(partial(simulate, shaky(), seeds=[seed], **options))
        for seed in SCHEDULE_SEEDS:
            run = partial(simulate, one_task(), seeds=[seed], schedules=schedules())
            traces[f"storm/schedules-{seed}"] = exact(run)
    if "calm" in kinds:
        for seed in CALM_SEEDS:
            traces[f"calm/{seed}"] = by_input(partial(calm, seed))
        if len({digest(lines) for name, lines in traces.items() if name.startswith("calm/")}) != 1:
            print("note: the calm traces differ between seeds", file=sys.stderr)
    if "crash" in kinds:
        for name, scenario in SCENARIOS.items():
            traces |= with_crashes(name, scenario)
    return traces


def calm(seed: int) -> Any:
    """No fault at all, whatever the faults are called."""
    faults = parameter("faults")
    none = faults(**dict.fromkeys(faults.__struct_fields__, 0))
    numbers = itertools.count()

    def make_input(chance: Any) -> dict[str, Any]:
        number = next(numbers)
        return {"n": number, "way": WAYS[number % len(WAYS)]}

    return simulate(
        by_number(),
        seeds=[seed],
        jobs=2 * len(WAYS),
        faults=none,
        tasks=by_number_tasks(),
        make_input=make_input,
    )


def schedules() -> dict[str, Any]:
    """One of each kind of overlap."""
    kinds: list[dict[str, Any]] = [
        {"interval_seconds": 2, "catch_up": "all"},
        {"interval_seconds": 3, "overlap": "skip"},
        {"interval_seconds": 3, "overlap": "cancel_previous", "jitter_seconds": 2.0},
        {"interval_seconds": 1, "overlap": "buffer_one"},
    ]
    made = (msgspec.convert({"blueprint": "one_task", **kind}, parameter("schedules")) for kind in kinds)
    return {f"schedule-{number}": schedule for number, schedule in enumerate(made)}


def parameter(name: str) -> Any:
    """The struct that a parameter of `simulate` takes, wherever it lives."""

    def walk(hint: Any) -> Iterator[Any]:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint
        for inner in typing.get_args(hint):
            yield from walk(inner)

    return next(walk(typing.get_type_hints(simulate)[name]))


def exact(run: Callable[[], Any]) -> list[str]:
    """Everything, with times; ids and names are replaced by numbers, so that only their order matters."""
    events, jobs, report = recorded(run)
    order = sorted(jobs, key=lambda job_id: (events[job_id][0].at, jobs[job_id].blueprint, job_id))
    lines = job_lines(events, jobs, order, drop=PROSE)
    return [*lines, f"commits {report.commits}" if hasattr(report, "commits") else ""]


def by_input(run: Callable[[], Any]) -> list[str]:
    """Without times; jobs in the order of their numbers, parents first; parallel branches one after the other."""
    events, jobs, _ = recorded(run)
    order = sorted(jobs, key=lambda job_id: (jobs[job_id].input["n"], jobs[job_id].depth))
    return job_lines(events, jobs, order, drop=(*PROSE, *TIMING), branches_in_order=True)


def recorded(run: Callable[[], Any]) -> tuple[Mapping[str, list[Event]], Mapping[str, Job], Any]:
    _recorded.clear()
    report = run()
    if not _recorded:
        raise SystemExit(
            f"regista.testing.invariants.{_HOOK} was not called by simulate(): adapt _HOOK in {__file__}"
        )
    events, jobs = _recorded[-1]
    return events, jobs, report


def job_lines(
    events: Mapping[str, list[Event]],
    jobs: Mapping[str, Job],
    order: Iterable[str],
    drop: tuple[str, ...],
    branches_in_order: bool = False,
) -> list[str]:
    names = {job_id: f"job-{number}" for number, job_id in enumerate(order)}
    tasks: dict[str, str] = {}
    for job_id, job_name in names.items():
        own = dict.fromkeys(event.task_id for event in events[job_id] if event.task_id)
        tasks |= {task_id: f"{job_name}/task-{number}" for number, task_id in enumerate(own)}
    workers = numbered("worker", (event.worker_id for each in events.values() for event in each))
    clients = numbered("client", (job.client for job in jobs.values()))
    if branches_in_order:  # which client has which number is chance
        clients = dict.fromkeys(clients, "client#")
    # Longer ones first: a task's id may begin with its job's.
    known = sorted((tasks | names | workers | clients).items(), key=lambda pair: -len(pair[0]))
    lines = []
    for job_id, job_name in names.items():
        rows = [row(event, drop) for event in events[job_id]]
        shown = in_branch_order(rows) if branches_in_order else rows
        lines += [f"{job_name} {renamed(each, known)}" for each in shown]
        lines.append(f"{job_name} {renamed(ending(jobs[job_id]), known)}")
    return lines


def row(event: Event, drop: tuple[str, ...]) -> dict[str, Any]:
    made = msgspec.to_builtins(event)
    if "duration_ms" in drop:  # what a task cost is its duration times the worker's price
        made["detail"] = {name: value for name, value in event.detail.items() if name != "cost"}
    return {name: value for name, value in made.items() if name not in drop and name != "job_id"}


def ending(job: Job) -> dict[str, Any]:
    error = job.error.code if job.error is not None else None
    fields = {"status": job.status, "state": job.state, "result": job.result, "error": error}
    return {"job": msgspec.to_builtins(fields | {"attributes": job.search_attributes})}


def in_branch_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of task events sorted by task; within one task, and between job events, the order stays."""
    ranks = {task: rank for rank, task in enumerate(dict.fromkeys(each.get("task_id") for each in rows))}
    ordered: list[dict[str, Any]] = []
    for of_tasks, run in itertools.groupby(rows, key=lambda each: "task_id" in each):
        together = list(run)
        ordered += sorted(together, key=lambda each: ranks[each["task_id"]]) if of_tasks else together
    return ordered


def numbered(word: str, names: Iterable[str | None]) -> dict[str, str]:
    return {name: f"{word}#{number}" for number, name in enumerate(sorted({name for name in names if name}))}


def renamed(fields: dict[str, Any], known: list[tuple[str, str]]) -> str:
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False)
    for name, label in known:
        text = text.replace(name, label)
    return text


# -- crashes -----------------------------------------------------------------------------------------

Scenario = Callable[[TestOrchestrator], None]


def finishes(kit: TestOrchestrator) -> None:
    kit.register(*everything())
    for name in ("prepare", "part", "help"):
        kit.task(name)(lambda params: {"index": params.get("index")})
    job = kit.run("everything")
    kit.approve(job, "yes")
    kit.wait(job)


def times_out(kit: TestOrchestrator) -> None:
    kit.register(one_task(result_timeout=30, transitions={"success": "done", "timeout": "late"}))
    kit.wait(kit.submit("one_task"))


def runs_too_long(kit: TestOrchestrator) -> None:
    kit.register(one_task(attempt_timeout=5, retry=RetryPolicy(max_attempts=2, first_s=1, jitter=0)))

    @kit.task("work")
    async def work(params: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    kit.wait(kit.submit("one_task"))


def fails_permanently(kit: TestOrchestrator) -> None:
    kit.register(one_task())

    @kit.task("work")
    def work(params: dict[str, Any]) -> None:
        raise regista.PermanentError("broken")

    kit.wait(kit.submit("one_task"))


def is_quarantined_and_released(kit: TestOrchestrator) -> None:
    blueprint = StateMachineBlueprint("mended")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        if not context.state_history.get("mended"):
            raise RuntimeError("not yet")
        actions.transition_to("done")

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    kit.register(blueprint)
    job = kit.wait(kit.submit("mended"))
    kit.release(job, {"mended": True})
    kit.wait(job)


def is_quarantined_and_failed(kit: TestOrchestrator) -> None:
    kit.register(one_task(retry=RetryPolicy(max_attempts=2, first_s=1, jitter=0)))

    @kit.task("work")
    def work(params: dict[str, Any]) -> None:
        raise regista.TransientError("again and again")

    job = kit.wait(kit.submit("one_task"))
    if not job.status.terminal:
        kit.fail(job, "given up")


def is_cancelled(kit: TestOrchestrator) -> None:
    kit.register(one_task())
    job = kit.submit("one_task")
    kit.skip(5)
    kit.cancel(job, "changed my mind")
    kit.wait(job)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        finishes,
        times_out,
        runs_too_long,
        fails_permanently,
        is_quarantined_and_released,
        is_quarantined_and_failed,
        is_cancelled,
    )
}


def with_crashes(name: str, scenario: Scenario) -> Traces:
    """The scenario undisturbed, then with a power cut around the first write that carries each type of its events."""
    lines, kinds = played(scenario)
    traces = {f"crash/{name}": lines}
    for kind in kinds:
        for when in ("before", "after"):
            traces[f"crash/{name}-{when}-{kind}"] = played(scenario, (kind, when))[0]
    return traces


def played(scenario: Scenario, crash: tuple[str, typing.Any] | None = None) -> tuple[list[str], list[str]]:
    with TestOrchestrator() as kit:
        if crash is not None:
            kind, when = crash
            kit.crash_at(lambda event: event.type.value == kind, when)
        scenario(kit)
        jobs = {job.id: job for job in kit.jobs()}
        events = {job_id: kit.events(job_id) for job_id in jobs}
        crashes = kit.crashes
    order = sorted(jobs, key=lambda job_id: (events[job_id][0].at, jobs[job_id].depth, job_id))
    lines = job_lines(events, jobs, order, drop=(*PROSE, *TIMING), branches_in_order=True)
    return [*lines, f"power cuts {crashes}"], list(
        dict.fromkeys(event.type.value for job_id in order for event in events[job_id])
    )


# -- comparing ---------------------------------------------------------------------------------------


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def traces_at(revision: str) -> Traces:
    """The traces of another commit: its `src`, this script, this Python."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        dump = Path(folder) / "traces.json"
        subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--dump", str(dump)], cwd=folder, check=True
        )
        found: Traces = json.loads(dump.read_text())
        return found


def report(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Print what differs, kind by kind; returns the names of the traces that do."""
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    for kind in ("storm", "calm", "crash"):
        every = [name for name in before.keys() | after.keys() if name.startswith(f"{kind}/")]
        wrong = sorted(name for name in changed if name in every)
        print(
            f"{kind}: {len(every) - len(wrong)} of {len(every)} equal"
            + (f"; differ: {', '.join(wrong[:8])}" if wrong else "")
        )
    return sorted(changed)


def show_first_difference(name: str, before: list[str], after: list[str]) -> None:
    for number, (old, new) in enumerate(itertools.zip_longest(before, after)):
        if old != new:
            print(f"{name}, line {number + 1}:\n  before: {old}\n  after:  {new}")
            return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="store the digests of this checkout")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", default=GOLDEN, help="the digests to compare with"
    )
    parser.add_argument(
        "--against", metavar="REVISION", help="compare with that commit, recomputed, line by line"
    )
    parser.add_argument("--show", metavar="TRACE", help="print one trace, such as storm/0 or crash/finishes")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="store the whole traces")
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help="storm, calm or crash"
    )
    args = parser.parse_args()
    traces = collect(args.only)
    if args.show:
        print("\n".join(traces[args.show]))
        return 0
    if args.dump:
        args.dump.write_text(json.dumps(traces))
        return 0
    digests = {name: digest(lines) for name, lines in traces.items()}
    if args.write:
        header = {"commit": commit(), "python": platform.python_version()}
        args.write.write_text(json.dumps(header | {"digests": digests}, indent=1) + "\n")
        print(f"{len(digests)} digests of {header['commit']} written to {args.write}")
        return 0
    if args.against:
        before = traces_at(args.against)
        earlier = {
            name: digest(lines) for name, lines in before.items() if name.partition("/")[0] in args.only
        }
        changed = report(earlier, digests)
        for name in changed[:3]:
            show_first_difference(name, before.get(name, []), traces.get(name, []))
        return 1 if changed else 0
    golden = json.loads(args.compare.read_text())
    expected = {name: each for name, each in golden["digests"].items() if name.partition("/")[0] in args.only}
    if golden["python"].rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
        print(
            f"note: the digests are those of Python {golden['python']}; use it, or --against", file=sys.stderr
        )
    print(f"compared with {golden['commit']}:")
    return 1 if report(expected, digests) else 0


if __name__ == "__main__":
    sys.exit(main())
