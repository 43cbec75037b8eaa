"""What behaviour tests share: short blueprints, and a worker that is moved by hand."""

from collections.abc import Callable, Sequence
from typing import Any

from regista import Event, EventType, Job, MemoryStorage, StateMachineBlueprint, TaskResult
from regista.blueprint import ActionFactory, JobContext
from regista.dispatch.connected import CallbackConnection
from regista.model import ResultVerdict, Task, TaskFailure
from regista.model import Worker as WorkerRecord
from regista.testing.orchestrator import TestOrchestrator
from regista.workers.service import HeartbeatReply

Handler = Callable[[JobContext, ActionFactory], Any]


def answer(context: JobContext, actions: ActionFactory) -> None:
    """The handler of an end state: what was gathered is the result."""
    actions.set_result(context.state_history)


def script(
    start: Handler,
    *ends: str,
    name: str = "script",
    aggregators: Sequence[str] = (),
    blocking: bool = False,
    **handlers: Handler,
) -> StateMachineBlueprint:
    """`start` decides in the state "start"; `handlers` in the states of their names; `ends` only answer."""
    blueprint = StateMachineBlueprint(name)
    every = ["start", *ends, *handlers]
    blueprint.handler_for("start", is_start=True, targets=every, blocking=blocking)(start)
    for state, handler in handlers.items():
        if state in aggregators:
            blueprint.aggregator_for(state, targets=every)(handler)
        else:
            blueprint.handler_for(state, targets=every)(handler)
    for state in ends or ("done",):
        blueprint.handler_for(state, is_end=True)(answer)
    return blueprint


def one_task(
    *ends: str, name: str = "script", transitions: dict[str, str] | None = None, **options: Any
) -> StateMachineBlueprint:
    """Dispatches one task "work" and ends where its transitions lead."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        leads = transitions or {"success": "done"}
        actions.dispatch_task("work", dict(context.initial_data), transitions=leads, **options)

    return script(start, *(ends or ("done",)), name=name)


def fan_out(
    count: int, *, ends: Sequence[str] = ("done",), aggregate: Handler | None = None, **options: Any
) -> StateMachineBlueprint:
    """Dispatches `count` branches of the task "work"; their results become `state_history["results"]`."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        for index in range(count):
            actions.dispatch_task("work", {"n": index}, transitions={"success": "join"}, **options)

    def join(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["results"] = list(context.aggregation_results.values())
        context.state_history["keys"] = list(context.aggregation_results)
        actions.transition_to("done")

    return script(start, *ends, aggregators=["join"], join=aggregate or join)


def types(events: Sequence[Event]) -> list[str]:
    return [event.type.value for event in events]


def only(events: Sequence[Event], kind: EventType) -> list[Event]:
    return [event for event in events if event.type is kind]


def fault(job: Job) -> str:
    """The code of what is wrong with the job."""
    assert job.error is not None
    return job.error.code


class Puppet:
    """A worker that does nothing by itself. The test moves it."""

    def __init__(
        self,
        kit: TestOrchestrator,
        *skills: str,
        id: str = "puppet",
        capacity: int = 10,
        lease_s: float = 30.0,
        incarnation: str = "",
    ) -> None:
        self._kit = kit
        self._record = WorkerRecord(
            id=id, skills=skills or ("work",), capacity=capacity, incarnation=incarnation
        )
        self._lease_s = lease_s
        self.id = id
        self.session = 0
        self.tasks: list[Task] = []
        self.cancels: list[str] = []

    def join(self, *running: str) -> tuple[str, ...]:
        """Register; returns the attempts that it should stop."""
        service = self._kit.director.workers
        usual, service.lease_s = service.lease_s, self._lease_s
        self.tasks, self.cancels = [], []
        known, strays = self._kit.call(
            lambda: service.register(
                self._record, running, CallbackConnection(self.tasks.extend, self.cancels.extend)
            )
        )
        service.lease_s = usual
        self.session = known.session
        self.settle()
        return strays

    def settle(self) -> None:
        """Let everything happen that can at this instant."""
        self._kit.skip(0)

    def beat(self, *running: str) -> HeartbeatReply:
        service = self._kit.director.workers
        usual, service.lease_s = service.lease_s, self._lease_s
        beat = self._kit.call(lambda: service.heartbeat(self.id, self.session, running))
        service.lease_s = usual
        self.settle()
        return beat

    def leave(self) -> None:
        self._kit.call(lambda: self._kit.director.workers.leave(self.id, self.session))
        self.settle()

    def result(
        self, task: Task, data: Any = None, *, status: str | None = None, error: TaskFailure | None = None
    ) -> TaskResult:
        return TaskResult(
            task_id=task.attempt_id,
            job_id=task.job_id,
            worker_id=self.id,
            status=status,
            data=data,
            error=error,
        )

    def finish(
        self, task: Task, data: Any = None, *, status: str | None = None, error: TaskFailure | None = None
    ) -> ResultVerdict:
        """Say how the task went; returns the orchestrator's word."""
        return self.deliver(self.result(task, data, status=status, error=error))

    def deliver(self, result: TaskResult) -> ResultVerdict:
        verdict = self._kit.call(lambda: self._kit.director.workers.deliver(result))
        self.settle()
        return verdict

    def fail(self, task: Task, code: str, message: str = "") -> ResultVerdict:
        return self.finish(task, error=TaskFailure(code, message))


class Shared:
    """The store as each of two instances sees it: neither may close it."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None
