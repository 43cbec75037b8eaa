"""The blueprints and the worker that the benches play with. They do next to nothing, on purpose."""

import random
import time
from collections import Counter
from typing import Any

from regista import ActionFactory, JobContext, RetryPolicy, StateMachineBlueprint, Worker

#: Sequential steps of the chain.
STEPS = 40
#: What the CPU-bound handler burns.
BURN_S = 0.002


def idle_worker(concurrency: int) -> Worker:
    """A worker that answers at once."""
    worker = Worker("bench", concurrency=concurrency)

    @worker.task("noop")
    async def noop(params: dict[str, Any]) -> dict[str, Any]:
        return {"n": params["n"]}

    return worker


def one_task(burn_s: float = 0.0, calls: Counter[str] | None = None) -> StateMachineBlueprint:
    """One task, then the end. `calls` counts the runs of the start handler; `burn_s` is what each burns."""
    blueprint = StateMachineBlueprint("one_task")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        if burn_s:
            until = time.thread_time() + burn_s
            while time.thread_time() < until:
                pass
        if calls is not None:
            calls["start"] += 1
        actions.dispatch_task("noop", {"n": context.initial_data["n"]}, transitions={"success": "done"})

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["n"])

    return blueprint


def chain() -> StateMachineBlueprint:
    """STEPS no-op tasks, one after the other, each in a state of its own."""
    blueprint = StateMachineBlueprint("chain")
    for index in range(STEPS):
        follower = f"step_{index + 1}" if index + 1 < STEPS else "done"
        _add_step(blueprint, index, follower)

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["n"])

    return blueprint


def _add_step(blueprint: StateMachineBlueprint, index: int, follower: str) -> None:
    @blueprint.handler_for(f"step_{index}", is_start=index == 0, targets=[follower])
    def step(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("noop", {"n": index}, transitions={"success": follower})


def fan_out() -> StateMachineBlueprint:
    """`initial_data["tasks"]` parallel tasks, and one aggregation that counts what came back."""
    blueprint = StateMachineBlueprint("fan_out")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        tasks = [{"type": "noop", "params": {"n": n}} for n in range(context.initial_data["tasks"])]
        actions.dispatch_parallel(tasks, aggregate_into="gather")

    @blueprint.aggregator_for("gather", is_end=True)
    def gather(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(sum(r["status"] == "success" for r in context.aggregation_results.values()))

    return blueprint


def mixed() -> list[StateMachineBlueprint]:
    """For the simulation: a retried task, a fan-out, a timer and a child in one job."""
    play = StateMachineBlueprint("mixed")

    @play.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("noop", {"n": 1}, {"success": "spread"}, retry=RetryPolicy(max_attempts=5))

    @play.handler_for("spread")
    def spread(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_parallel([{"type": "noop", "params": {"n": n}} for n in range(3)], "gather")

    @play.aggregator_for("gather")
    def gather(context: JobContext, actions: ActionFactory) -> None:
        actions.sleep(60, then="delegate")

    @play.handler_for("delegate")
    def delegate(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("one_task", {"n": 2}, {"success": "done", "failure": "done"})

    @play.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.job_id)

    return [play, one_task()]


def simulated_noop(params: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The same task for the simulation, where one in ten runs fails and is tried again."""
    if chance.random() < 0.1:
        return {"status": "failure", "error": "TRANSIENT_ERROR"}
    return {"status": "success", "data": {"n": params["n"]}}
