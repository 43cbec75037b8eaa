"""The app that compose.yaml runs: one blueprint and its worker. Put yours in its place."""

from typing import Any

from regista import ActionFactory, JobContext, StateMachineBlueprint, Worker

blueprint, worker = StateMachineBlueprint("greet"), Worker("greeter")


@blueprint.handler_for("start", is_start=True)
def start(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("say_hello", context.initial_data, transitions={"success": "done"})


@blueprint.handler_for("done", is_end=True)
def done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["greeting"])


@worker.task("say_hello")
async def say_hello(params: dict[str, Any]) -> dict[str, Any]:
    return {"greeting": f"Hello, {params['name']}!"}
