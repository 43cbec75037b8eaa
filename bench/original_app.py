"""The blueprints that the original's harness asks for (`bench.original`): one no-op task, and one that parks."""

from regista import ActionFactory, JobContext, StateMachineBlueprint

one = StateMachineBlueprint("bench_one", api_endpoint="/jobs/bench_one", api_version="v1")
park = StateMachineBlueprint("bench_park", api_endpoint="/jobs/bench_park", api_version="v1")


@one.handler_for("start", is_start=True)
async def start(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task(
        task_type="noop",
        params=context.initial_data,
        transitions={"success": "finished", "failure": "failed"},
        dispatch_strategy="least_connections",
    )


@park.handler_for("start", is_start=True)
async def wait(context: JobContext, actions: ActionFactory) -> None:
    actions.await_human_approval(integration="none", message="park", transitions={"go": "finished"})


@one.handler_for("finished", is_end=True)
@park.handler_for("finished", is_end=True)
async def finished(context: JobContext, actions: ActionFactory) -> None:
    pass


@one.handler_for("failed", is_end=True)
async def failed(context: JobContext, actions: ActionFactory) -> None:
    pass
