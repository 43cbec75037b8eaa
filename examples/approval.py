"""A job that waits for a person, while the orchestrator comes and goes: `python examples/approval.py reject`."""

import asyncio
import sys
import tempfile
from pathlib import Path

from regista import ActionFactory, JobContext, JobStatus, OrchestratorEngine, StateMachineBlueprint

blueprint = StateMachineBlueprint("refund")


@blueprint.handler_for("start", is_start=True)
def ask(context: JobContext, actions: ActionFactory) -> None:
    amount = context.initial_data["amount"]
    actions.await_human_approval(f"Refund {amount} €?", transitions={"approve": "paid", "reject": "refused"})


# The small ones need nobody: the first handler whose condition holds decides.
@blueprint.handler_for("start", is_start=True).when("context.initial_data.amount < 20")
def pay_at_once(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("paid")


@blueprint.handler_for("paid", is_end=True)
def paid(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(f"{context.initial_data['amount']} € paid")


@blueprint.handler_for("refused", is_end=True, outcome="failed")
def refused(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result("no refund")


def director_on(file: Path) -> OrchestratorEngine:
    director = OrchestratorEngine(f"sqlite:{file}")
    director.register_blueprint(blueprint)
    return director


async def main(decision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.db"
        async with director_on(file) as monday:
            small = await monday.run_job("refund", {"amount": 5})
            print(f"5 €: {small.status}, {small.result}")
            large = await monday.submit("refund", {"amount": 500})
            print(f"500 €: {large.status}; the office closes")
        async with director_on(file) as tuesday:
            assert (await tuesday.get(large.id)).status is JobStatus.WAITING_FOR_HUMAN
            await tuesday.approve(large.id, decision)
            large = await tuesday.wait(large.id)
            print(f"500 €: {large.status}, {large.result}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "approve"))
