"""The app of the HTTP benches: the workloads of every peer, as blueprints, and a worker for them.

W1 is one no-op task, W2 three one after the other, W3 a hundred at once and one aggregation; `chain` is forty
tasks of ten milliseconds, and `parked` waits for a worker that never comes. Every answer is checked: W1 gives 1,
W2 gives 3, W3 gives 100.
"""

import asyncio
from typing import Any

from regista import ActionFactory, JobContext, StateMachineBlueprint, Worker

FAN_OUT = 100
STEPS = 40
STEP_S = 0.01

w1 = StateMachineBlueprint("w1", api_endpoint="/jobs/bench_one", api_version="v1")
w2 = StateMachineBlueprint("w2")
w3 = StateMachineBlueprint("w3")
chain = StateMachineBlueprint("chain")
parked = StateMachineBlueprint("parked")
worker = Worker("bench", concurrency=200)


@w1.handler_for("start", is_start=True)
async def one(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("noop", {"n": 1}, transitions={"success": "finished"})


@w1.handler_for("finished", is_end=True)
async def one_done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["n"])


@w2.handler_for("start", is_start=True)
async def first(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("inc", {"n": 0}, transitions={"success": "second"})


@w2.handler_for("second")
async def second(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("inc", {"n": context.state_history["n"]}, transitions={"success": "third"})


@w2.handler_for("third")
async def third(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("inc", {"n": context.state_history["n"]}, transitions={"success": "finished"})


@w2.handler_for("finished", is_end=True)
async def two_done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["n"])


@w3.handler_for("start", is_start=True)
async def spread(context: JobContext, actions: ActionFactory) -> None:
    for n in range(FAN_OUT):
        actions.dispatch_task("noop", {"n": n}, transitions={"success": "gather"})


@w3.aggregator_for("gather")
async def gather(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(sum(result["status"] == "success" for result in context.aggregation_results.values()))
    actions.transition_to("finished")


@w3.handler_for("finished", is_end=True)
async def three_done(context: JobContext, actions: ActionFactory) -> None:
    pass


@chain.handler_for("start", is_start=True)
async def step(context: JobContext, actions: ActionFactory) -> None:
    done = context.state_history.get("n", 0)
    if done < STEPS:
        actions.dispatch_task("nap", {"n": done}, transitions={"success": "start"})
    else:
        actions.transition_to("finished")


@chain.handler_for("finished", is_end=True)
async def chain_done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["n"])


@parked.handler_for("start", is_start=True)
async def park(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("nobody", {"n": 1}, transitions={"success": "finished"})


@parked.handler_for("finished", is_end=True)
async def parked_done(context: JobContext, actions: ActionFactory) -> None:
    pass


@worker.task("noop")
async def noop(params: dict[str, Any]) -> dict[str, Any]:
    return params


@worker.task("inc")
async def inc(params: dict[str, Any]) -> dict[str, Any]:
    return {"n": params["n"] + 1}


@worker.task("nap")
async def nap(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(STEP_S)
    return {"n": params["n"] + 1}
