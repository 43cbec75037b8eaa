"""What a job waits for, in words: for the test that waited in vain."""

from collections.abc import Collection

from ..model import AwaitBranches, AwaitChild, AwaitHuman, AwaitTask, Job, JobStatus
from ..orchestrator import OrchestratorEngine


class NotSettled(AssertionError):
    """The job did not settle; the message says what it waits for."""

    def __init__(self, job: Job, waits_for: str) -> None:
        super().__init__(f"job {job.id} is {job.status} in state {job.state!r} and waits for {waits_for}")
        self.job = job


async def person_for(director: OrchestratorEngine, job: Job) -> str | None:
    """The person without whom nothing happens to the job, or to the child that it waits for."""
    if isinstance(job.wait, AwaitHuman) and job.status is JobStatus.WAITING_FOR_HUMAN:
        known = ", ".join(sorted(job.wait.transitions))
        return f"a person's decision ({known}): {job.wait.message}"
    if isinstance(job.wait, AwaitChild) and job.status is JobStatus.WAITING_FOR_CHILD:
        child = await director.get(job.wait.child_id)
        if child.status is JobStatus.QUARANTINED:
            why = f": {child.error.message}" if child.error is not None else ""
            return f"its child {child.id}, which is quarantined in state {child.state!r}{why}"
        below = await person_for(director, child)
        return None if below is None else f"its child {child.id} ({child.blueprint}), which waits for {below}"
    return None


async def explain(director: OrchestratorEngine, job: Job, skills: Collection[str]) -> str:
    """What the job waits for; `skills` are the tasks that somebody can do."""
    wait = job.wait
    if isinstance(wait, AwaitTask | AwaitBranches):
        tasks = await director.storage.tasks_of(job.id)
        shown = ", ".join(f"task {task.type!r} ({task.state}, attempt {task.attempt})" for task in tasks)
        known = ", ".join(sorted(skills)) or "none"
        return f"{shown or 'its tasks'}; tasks that somebody here can do: {known}"
    if isinstance(wait, AwaitChild):
        child = await director.get(wait.child_id)
        return f"its child {child.id} ({child.blueprint}), which is {child.status}"
    return repr(wait) if wait is not None else "its turn"
