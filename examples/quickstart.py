"""The smallest whole program: a blueprint, a worker, a job. Run it: `python examples/quickstart.py Ada`."""

import asyncio
import sys
from typing import Any

from regista import ActionFactory, JobContext, OrchestratorEngine, StateMachineBlueprint, Worker

blueprint = StateMachineBlueprint("greet")
worker = Worker()


@blueprint.handler_for("start", is_start=True)
def start(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task(
        "say_hello", {"name": context.initial_data["name"]}, transitions={"success": "done"}
    )


@blueprint.handler_for("done", is_end=True)
def done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["greeting"])


@worker.task("say_hello")
async def say_hello(params: dict[str, Any]) -> dict[str, Any]:
    return {"greeting": f"Hello, {params['name']}!"}


async def main(name: str) -> None:
    director = OrchestratorEngine("sqlite:.regista/quickstart.db")
    director.register_blueprint(blueprint)
    director.add_worker(worker)
    async with director:
        job = await director.run_job("greet", {"name": name})
    print(job.status, job.result)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "Ada"))
