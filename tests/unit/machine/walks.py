"""Random graphs, random wishes, and a walker that carries one job through them as the engine would."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from regista.blueprint import Graph
from regista.blueprint.decisions import (
    Action,
    AskHuman,
    Decision,
    Dispatch,
    Fail,
    FanOut,
    Finish,
    HandlerFailed,
    RunChild,
    Sleep,
    TaskOrder,
    Transition,
)
from regista.blueprint.graph import StateInfo
from regista.machine import signals, task_results, transitions
from regista.machine.step import DecisionContext, MachineSettings, Step
from regista.machine.task_results import TaskStep
from regista.model import (
    HELD_STATES,
    OPEN_STATES,
    AttemptState,
    AwaitBranches,
    AwaitChild,
    Event,
    EventType,
    Job,
    JobMessage,
    JobMessageKind,
    JobStatus,
    ResultVerdict,
    RetryPolicy,
    Task,
    TaskFailure,
    TaskResult,
)
from regista.testing.clock import BEGINNING

STATUSES = ["success", "failure", "odd", "timeout", "cancelled"]
CODES = ["TRANSIENT_ERROR", "PERMANENT_ERROR", "INVALID_INPUT_ERROR", "X"]
KEYS = [*STATUSES, *CODES]
CHILD = Graph(
    blueprint="child", version="c", start="s", states={"s": StateInfo(name="s", is_start=True, is_end=True)}
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any shape with a start and an end; states may lead anywhere, themselves included."""
    names = [f"s{n}" for n in range(draw(st.integers(1, 4)))]
    ends = ["end", *(["failed"] if draw(st.booleans()) else [])]
    joins = ["join"] if draw(st.integers(0, 3)) else []
    every = [*names, *joins, *ends]
    states = {}
    for name in [*names, *joins]:
        targets = draw(st.none() | st.frozensets(st.sampled_from(every), min_size=1))
        states[name] = StateInfo(
            name=name, is_start=name == "s0", is_aggregator=name == "join", targets=targets
        )
    for name in ends:
        outcome = "failed" if name == "failed" else draw(st.sampled_from(["finished", "failed"]))
        states[name] = StateInfo(name=name, is_end=True, outcome=outcome)
    return Graph(blueprint="b", version="v", start="s0", states=states)


@st.composite
def actions(draw: st.DrawFn, graph: Graph, state: str) -> Action:
    """Something that the handler of `state` could wish for: `actions` lets nothing else pass."""
    info = graph.states[state]
    if info.is_end:
        return Finish() if draw(st.booleans()) else Fail("no", "nope")
    allowed = [name for name in sorted(graph.states) if graph.allows(state, name)]
    joins = [name for name in allowed if graph.states[name].is_aggregator]
    plain = [name for name in allowed if name not in joins]
    kinds = ["fail", *(["move", "sleep", "ask", "child"] if allowed else [])]
    kinds += [*(["task"] if plain else []), *(["fan"] if joins else [])]
    kind = draw(st.sampled_from(kinds))
    ways = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(allowed or ["none"]), min_size=1)
    match kind:
        case "move":
            return Transition(draw(st.sampled_from(allowed)))
        case "sleep":
            return Sleep(draw(st.floats(0, 1e6)), draw(st.sampled_from(allowed)))
        case "ask":
            return AskHuman("ok?", draw(ways))
        case "child":
            return RunChild(draw(st.sampled_from(["child", "nobody"])), {}, draw(ways))
        case "task":
            targets = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(plain), min_size=1)
            return Dispatch(draw(orders(targets)))
        case "fan":
            targets = st.dictionaries(st.sampled_from(KEYS), st.just(joins[0]), min_size=1)
            return FanOut(tuple(draw(st.lists(orders(targets), min_size=1, max_size=4))), joins[0])
        case _:
            return Fail("no", "nope")


def orders(ways: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[TaskOrder]:
    seconds = st.none() | st.floats(0.1, 1e5)
    policy = st.none() | st.builds(
        RetryPolicy, max_attempts=st.integers(1, 3), lost_budget=st.integers(0, 2), first_s=st.floats(0, 10)
    )
    return st.builds(
        TaskOrder,
        task_type=st.just("work"),
        params=st.just({}),
        transitions=ways,
        dispatch_timeout_s=seconds,
        result_timeout_s=seconds,
        attempt_timeout_s=seconds,
        heartbeat_timeout_s=seconds,
        retry=policy,
    )


class Walker:
    """One job and what a store would keep beside it; every step is checked as it is taken."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.now = BEGINNING
        self.tasks: dict[str, Task] = {}
        self.open = 0
        self.events: list[Event] = []
        self.ends = 0
        born = Job(
            id="j",
            blueprint="b",
            version="v",
            state=graph.start,
            created_at=self.now,
            updated_at=self.now,
            visit=1,
            entered_at=self.now,
        )
        self.job = born
        self.take(transitions.create(born, self.context()))

    def context(self, chance: float = 0.5) -> DecisionContext:
        rules = MachineSettings(handler_retry=RetryPolicy(max_attempts=2), max_depth=3)
        find = {"child": CHILD, "b": self.graph}.get
        return DecisionContext(now=self.now, graph=self.graph, find_graph=find, settings=rules, random=chance)

    @property
    def listed(self) -> list[Task]:
        return list(self.tasks.values())

    # -- writing, with the fences of a store -----------------------------------------------------

    def take(self, step: Step | TaskStep | ResultVerdict | None) -> None:
        """Apply a step; the two rules of the machine are checked here."""
        if step is None or isinstance(step, ResultVerdict):
            return
        assert not self.ends, "a terminal job was touched"
        for write in step.tasks:
            if write.attempt:
                stored = self.tasks[write.task.id]
                assert (stored.attempt, stored.state in write.states) == (write.attempt, True)
        if isinstance(step, Step):
            self._take_job(step)
        for write in step.tasks:
            if not (isinstance(step, Step) and step.drop_tasks and write.attempt):
                self.tasks[write.task.id] = write.task
        self.open -= step.closes_branches
        assert self.open >= 0, "a branch was counted twice"
        if self.job.status.terminal:
            self.tasks.clear()
        self.events += step.events
        self._check_edges(step.events)

    def _take_job(self, step: Step) -> None:
        if step.drop_tasks:
            self.tasks.clear()
        if step.opens_branches is not None:
            self.open = step.opens_branches
        self.job = replace(step.job, revision=self.job.revision + 1)
        self.ends += self.job.status.terminal
        assert self.ends <= 1

    def _check_edges(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if event.type is EventType.STATE_FINISHED and event.next_state is not None:
                assert self.graph.allows(event.state or "", event.next_state), (
                    f"{event.state} → {event.next_state}"
                )

    def check_accounted_for(self) -> None:
        """Promise 5: whatever it waits for is there."""
        job = self.job
        if job.status.settled:
            return
        if isinstance(job.wait, AwaitBranches):
            branches = [task for task in self.listed if task.state in OPEN_STATES]
            assert len(branches) == self.open
        elif job.status is JobStatus.WAITING_FOR_WORKER:
            assert any(task.state in OPEN_STATES for task in self.listed)
        elif not job.runnable(self.open) and not isinstance(job.wait, AwaitChild):
            assert job.deadline is not None or job.status in (
                JobStatus.WAITING_FOR_HUMAN,
                JobStatus.CANCELLING,
            )

    # -- what may happen -------------------------------------------------------------------------

    def run_handler(self, data: st.DataObject) -> None:
        job, context = self.job, self.context(data.draw(st.floats(0, 1), label="chance"))
        if not job.runnable(self.open) or job.status.terminal:
            return
        if isinstance(job.wait, AwaitBranches):
            if job.status is JobStatus.CANCELLING:
                self.take(signals.cancelled(job, self.listed, context))
                return
            self.take(signals.aggregate(job, context))
            job = self.job
        if data.draw(st.integers(0, 4), label="raises") == 0:
            final = data.draw(st.booleans())
            self.take(transitions.handler_failed(job, HandlerFailed(message="raised", final=final), context))
            return
        action = data.draw(actions(self.graph, job.state), label="wish")
        seen = tuple(self.listed) if self.graph.states[job.state].is_aggregator else ()
        self.take(transitions.decide(job, Decision(action=action, data={}), context, seen))

    def move_task(self, data: st.DataObject) -> None:
        """A worker takes a waiting task, or begins with one it was offered."""
        waiting = [task for task in self.listed if task.waiting]
        if waiting:
            task = data.draw(st.sampled_from(waiting), label="offered")
            self.tasks[task.id] = replace(
                task, state=AttemptState.OFFERED, worker_id="w", offered_at=self.now, seen_at=self.now
            )
        offered = [task for task in self.listed if task.state is AttemptState.OFFERED]
        begins = data.draw(st.booleans(), label="begins")
        if offered and begins:
            task = data.draw(st.sampled_from(offered), label="started")
            self.take(task_results.mark_started(self.job, task, self.now))

    def hear(self, data: st.DataObject) -> None:
        """Any word about any attempt, late and wrong ones too."""
        known = [task.id for task in self.listed] or ["j_1_0"]
        task_id = data.draw(st.sampled_from(known), label="heard of")
        task = self.tasks.get(task_id)
        attempt = data.draw(st.sampled_from([task.attempt if task else 1, 1, 7]))
        code = data.draw(st.none() | st.sampled_from(CODES))
        result = TaskResult(
            task_id=f"{task_id}-{attempt}",
            job_id="j",
            worker_id=data.draw(st.sampled_from(["w", "w", "stranger"])),
            status=data.draw(st.none() | st.sampled_from(STATUSES), label="status"),
            data=data.draw(st.sampled_from([None, 1, {"k": 1}])),
            error=None if code is None else TaskFailure(code, "broken"),
        )
        if self.job.status.terminal:
            verdict = task_results.apply_result(self.job, None, result, self.context())
            assert isinstance(verdict, ResultVerdict)
            return
        self.take(task_results.apply_result(self.job, task, result, self.context(data.draw(st.floats(0, 1)))))

    def lose(self, data: st.DataObject) -> None:
        held = [task for task in self.listed if task.state in HELD_STATES]
        if held:
            task = data.draw(st.sampled_from(held), label="lost")
            kind = data.draw(st.sampled_from([EventType.TASK_LOST, EventType.TASK_UNDELIVERED]))
            self.take(task_results.lost(self.job, task, kind, self.context()))

    def pass_time(self, data: st.DataObject) -> None:
        self.now += timedelta(seconds=data.draw(st.sampled_from([0, 1, 60, 1e5, 1e7]), label="seconds"))
        self.take(signals.due(self.job, self.listed, self.context()))
        for task_id in list(self.tasks):
            if task_id in self.tasks:
                self.take(task_results.attempt_due(self.job, self.tasks[task_id], self.context()))

    def end_child(self, data: st.DataObject) -> None:
        wait = self.job.wait
        child = wait.child_id if isinstance(wait, AwaitChild) else "stranger"
        body: dict[str, Any] = {
            "status": data.draw(st.sampled_from(["finished", "failed", "cancelled"]), label="child"),
            "state": data.draw(st.sampled_from(KEYS)),
            "result": None,
            "error": None,
        }
        message = JobMessage(f"ended:{child}", JobMessageKind.CHILD_ENDED, "j", child, body)
        self.take(signals.child_ended(self.job, message, self.context()))
