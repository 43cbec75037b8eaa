"""The scripts that the simulation plays: together they use every action there is."""

import asyncio
import random
from typing import Any

from regista import ActionFactory, JobContext, StateMachineBlueprint


def everything() -> list[StateMachineBlueprint]:
    """One job that does all there is, and its child."""
    main = StateMachineBlueprint("everything")

    @main.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task(
            "prepare",
            {},
            {"success": "split", "PERMANENT_ERROR": "split"},
            requirements={"ram_gb": 8},
        )

    @main.handler_for("split")
    async def split(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.05)  # longer than the patience: the result is committed alone
        for index in range(4):
            strategy = ("default", "round_robin", "least_connections", "cheapest")[index]
            actions.dispatch_task("part", {"index": index}, {"success": "join"}, dispatch_strategy=strategy)

    @main.aggregator_for("join")
    def join(context: JobContext, actions: ActionFactory) -> None:
        assert len(context.aggregation_results) == 4
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
        context.state_history["mourned"] = True

    @main.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["parts"])

    child = StateMachineBlueprint("child")

    @child.handler_for("begin", is_start=True)
    def begin(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task(
            "help", {}, {"success": "end"}, result_timeout=30, requirements={"zone": "eu"}, max_cost=1.5
        )

    @child.handler_for("end", is_end=True)
    def end(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result("helped")

    return [main, child]


def one_task() -> StateMachineBlueprint:
    """The shortest useful job."""
    blueprint = StateMachineBlueprint("one_task")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {}, {"success": "done"})

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    return blueprint


def shaky() -> StateMachineBlueprint:
    """A handler that raises now and then, so that jobs are retried, quarantined and released."""
    blueprint = StateMachineBlueprint("shaky")
    chance = random.Random(7)

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["tried"] = context.state_history.get("tried", 0) + 1
        if chance.random() < 0.8:
            raise RuntimeError("not today")
        actions.transition_to("done")

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    return blueprint


def always_well(params: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A task that never fails."""
    return {"status": "success", "data": {"n": chance.randrange(100)}}
