"""ActionFactory: the `actions` of a handler. It collects one action and turns it into a Decision."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct, field

from ..errors import ActionError
from ..model import RetryPolicy
from ..model.attributes import Attributes, WrongAttribute, checked
from . import arguments
from .decisions import (
    Action,
    AskHuman,
    Decision,
    Dispatch,
    Fail,
    FanOut,
    Finish,
    RunChild,
    Sleep,
    TaskOrder,
    Transition,
)
from .graph import Graph
from .names import did_you_mean


class TaskGroup(Struct, eq=False):
    """The `dispatch_task` calls of one handler run.

    One call to an ordinary state is a Dispatch; calls that lead to one aggregator are a FanOut.

    A single call that leads to an aggregator is a fan-out of one. The targets exist: that was checked.
    """

    _graph: Graph
    _orders: list[TaskOrder] = field(default_factory=list)
    _aggregator: str | None = None

    def add(self, call: str, order: TaskOrder) -> None:
        """Adds an order. ActionError, and nothing changes, if it leads elsewhere than the others."""
        aggregator = self._common_aggregator(call, order.transitions)
        if self._orders and (aggregator is None or aggregator != self._aggregator):
            raise self._mismatch(call, order)
        self._orders.append(order)
        self._aggregator = aggregator

    def action(self) -> Dispatch | FanOut:
        """The action that the orders add up to."""
        if self._aggregator is not None:
            return FanOut(tuple(self._orders), self._aggregator)
        return Dispatch(self._orders[0])

    def _common_aggregator(self, call: str, transitions: dict[str, str]) -> str | None:
        """The aggregator that all transitions lead to; None if none leads to an aggregator."""
        states = self._graph.states
        aggregator = None
        for target in transitions.values():
            if states[target].is_aggregator:
                aggregator = target
        if aggregator is None:
            return None
        for status, target in transitions.items():
            if target != aggregator:
                raise ActionError(
                    f"{call}: {status!r} leads to {target!r} and another status to the aggregator "
                    f"{aggregator!r}; all transitions of a branch must lead to its aggregator"
                )
        return aggregator

    def _mismatch(self, call: str, order: TaskOrder) -> ActionError:
        before = next(iter(self._orders[0].transitions.values()))
        now = next(iter(order.transitions.values()))
        states = self._graph.states
        others = [repr(name) for name in dict.fromkeys((before, now)) if not states[name].is_aggregator]
        why = f" (not an aggregator: {', '.join(others)})" if others else ""
        return ActionError(
            f"{call}: an earlier call leads to {before!r}, this one to {now!r}{why}; "
            "parallel tasks must all lead to one and the same aggregator"
        )


class ActionFactory(Struct, eq=False):
    """The actions that a handler may take. One factory serves one run of one handler.

    A handler calls one kind of action, once; only `dispatch_task` may be called again, for branches that
    share their aggregator. `set_result` and `set_search_attributes` combine with anything. An action
    against the rules or the graph raises ActionError at the call, so the traceback shows the line; a refused
    action changes nothing. Nothing happens until the decision is committed.
    """

    _graph: Graph
    _state: str
    #: May be a function: the token is an HMAC, and most handlers ask for no approval.
    _token: str | Callable[[], str] = ""
    _declared: Attributes = field(default_factory=dict)
    #: The first action that was called, and what it came to.
    _first: str | None = None
    _action: Action | None = None
    _branches: TaskGroup | None = None
    _result: Any = UNSET
    _attributes: dict[str, Any] | None = None

    def transition_to(self, state: str) -> None:
        """Go on in `state`, at once."""
        call = self._begin("transition_to")
        self._set_action("transition_to", Transition(self._target(call, state)))

    def dispatch_task(
        self,
        task_type: str,
        params: dict[str, Any] | None = None,
        transitions: dict[str, str] | None = None,
        priority: float | None = None,
        queue: str | None = None,
        dispatch_timeout: float | None = None,
        result_timeout: float | None = None,
        heartbeat_timeout: float | None = None,
        attempt_timeout: float | None = None,
        retry: RetryPolicy | None = None,
        requirements: dict[str, Any] | None = None,
        dispatch_strategy: str | None = None,
        max_cost: float | None = None,
        *,
        resource_requirements: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
        dispatch_timeout_seconds: float | None = None,
        result_timeout_seconds: float | None = None,
    ) -> None:
        """Hand a task to a worker; the status of its result is the key into `transitions`.

        Called several times, or with an aggregator as the target, it fans out: all transitions of all
        calls must then lead to that one aggregator. Timeouts are seconds; the four arguments after the
        star are the names of before (`timeout_seconds` is `attempt_timeout`).
        """
        call = self._begin("dispatch_task")
        either = arguments.either
        if dispatch_timeout_seconds is not None:
            dispatch_timeout = either(call, "dispatch_timeout", dispatch_timeout, dispatch_timeout_seconds)
        if result_timeout_seconds is not None:
            result_timeout = either(call, "result_timeout", result_timeout, result_timeout_seconds)
        if timeout_seconds is not None:
            attempt_timeout = either(call, "attempt_timeout", attempt_timeout, timeout_seconds)
        if resource_requirements is not None:
            requirements = either(call, "requirements", requirements, resource_requirements)
        order = arguments.order(call, task_type, params, transitions)
        if not (
            priority is None
            and queue is None
            and dispatch_timeout is None
            and result_timeout is None
            and heartbeat_timeout is None
            and attempt_timeout is None
            and retry is None
            and requirements is None
            and dispatch_strategy is None
            and max_cost is None
        ):
            order = arguments.with_options(
                call,
                order,
                priority=priority,
                queue=queue,
                dispatch_timeout=dispatch_timeout,
                result_timeout=result_timeout,
                heartbeat_timeout=heartbeat_timeout,
                attempt_timeout=attempt_timeout,
                retry=retry,
                requirements=requirements,
                dispatch_strategy=dispatch_strategy,
                max_cost=max_cost,
            )
        for target in order.transitions.values():
            self._target(call, target)
        if self._branches is None:
            branches = TaskGroup(self._graph)
            branches.add(call, order)
            self._branches = branches
        else:
            self._branches.add(call, order)
        self._first = "dispatch_task"

    def dispatch_parallel(self, tasks: Sequence[dict[str, Any]], aggregate_into: str) -> None:
        """Hand several tasks to workers at once; when all are over, the aggregator `aggregate_into` runs.

        Each task is a dict with `type`, `params` and optionally any option of `dispatch_task`. With no
        task at all the aggregator runs at once, over nothing.
        """
        call = self._begin("dispatch_parallel")
        if not isinstance(tasks, list | tuple):
            raise arguments.wrong(call, "tasks", "a list of dicts", tasks)
        self._target(call, aggregate_into)
        if not self._graph.states[aggregate_into].is_aggregator:
            raise ActionError(
                f"{call}: {aggregate_into!r} is not an aggregator; declare it with aggregator_for"
            )
        orders = []
        for index, task in enumerate(tasks):
            place = f"{call}: tasks[{index}]"
            if not isinstance(task, dict):
                raise arguments.wrong(call, f"tasks[{index}]", "a dict", task)
            order = arguments.order_of(place, {"transitions": {"success": aggregate_into}} | task)
            for target in order.transitions.values():
                if target != aggregate_into:
                    raise ActionError(
                        f"{place}: leads to {target!r}, but its siblings meet in {aggregate_into!r}"
                    )
            orders.append(order)
        self._set_action("dispatch_parallel", FanOut(tuple(orders), aggregate_into))

    def await_human_approval(
        self, message: str, transitions: dict[str, str], integration: str | None = None
    ) -> str:
        """Wait for a person; the decision is the key into `transitions`.

        Returns the token that the decision must carry. It is the same when the handler is run again, so it
        may be mailed from here; the job waits only once this run's decision is committed.
        """
        call = self._begin("await_human_approval")
        if not isinstance(message, str):
            raise arguments.wrong(call, "message", "a str", message)
        if integration is not None:
            arguments.text(call, "integration", integration)
        leads = self._transitions(call, transitions)
        self._set_action("await_human_approval", AskHuman(message, leads, integration))
        token = self._token
        return token if isinstance(token, str) else token()

    def run_blueprint(
        self,
        blueprint_name: str,
        initial_data: dict[str, Any] | None = None,
        transitions: dict[str, str] | None = None,
    ) -> None:
        """Run another blueprint as a child; how it ends is the key into `transitions`.

        That is its end state, else `success`, `failure` or `cancelled`.
        """
        call = self._begin("run_blueprint")
        name = arguments.text(call, "blueprint_name", blueprint_name)
        data = arguments.mapping(call, "initial_data", initial_data)
        self._set_action("run_blueprint", RunChild(name, data, self._transitions(call, transitions)))

    def sleep(self, seconds: float, then: str | None = None) -> None:
        """Wait, then go on in `then`; without it, this state's handler runs again (an edge to itself)."""
        call = self._begin("sleep")
        pause = arguments.seconds(call, "seconds", seconds, zero=True)
        self._set_action("sleep", Sleep(pause, self._target(call, self._state if then is None else then)))

    def fail(self, reason: str, code: str = "failed_by_handler") -> None:
        """End the job as failed, through the state `failed` when the blueprint has one."""
        call = self._begin("fail")
        if not isinstance(reason, str):
            raise arguments.wrong(call, "reason", "a str", reason)
        self._set_action("fail", Fail(reason, arguments.text(call, "code", code)))

    def set_result(self, value: Any) -> None:
        """What the job answers when it ends. The last call wins."""
        self._result = value

    def set_search_attributes(self, attributes: dict[str, Any]) -> None:
        """Make the job findable by these; several calls add up.

        Values are str, int, float, bool, datetime (with a zone) or list[str], as the blueprint declares them;
        a name that it does not declare is refused, where it declares any.
        """
        call = f"state {self._state!r}: set_search_attributes"
        if not isinstance(attributes, dict):
            raise arguments.wrong(call, "attributes", "a dict", attributes)
        try:
            attributes = checked(self._declared, attributes)
        except WrongAttribute as error:
            raise ActionError(f"{call}: {error}") from None
        fit = {key: arguments.search_attribute(call, key, value) for key, value in attributes.items()}
        self._attributes = fit if self._attributes is None else self._attributes | fit

    def decision(self, data: dict[str, Any], duration_ms: float = 0.0) -> Decision:
        """The decision of a handler that has returned. `data` is its `state_history`.

        No action is an error that names the state, except in an end state, where it is the rule.
        """
        if not isinstance(data, dict):
            raise arguments.wrong(f"state {self._state!r}", "context.state_history", "a dict", data)
        action = self._action
        if action is None:
            action = self._branches.action() if self._branches is not None else self._finish()
        return Decision(
            action=action,
            data=data,
            result=self._result,
            search_attributes={} if self._attributes is None else self._attributes,
            duration_ms=duration_ms,
        )

    def _begin(self, name: str) -> str:
        """Refuse a second action and an action that leads on from an end; else the words for messages."""
        first = self._first
        if first is not None and not (first == name == "dispatch_task"):
            raise ActionError(
                f"state {self._state!r}: {name} was called after {first}; a handler takes one kind of action, "
                "and only dispatch_task may be called more than once"
            )
        info = self._graph.states.get(self._state)
        if info is not None and info.is_end and name != "fail":
            raise ActionError(
                f"state {self._state!r}: {name} was called, but an end state cannot lead on; "
                "it may set_result, set_search_attributes or fail"
            )
        return f"state {self._state!r}: {name}"

    def _set_action(self, name: str, action: Action) -> None:
        # Only a valid action counts: a handler that catches the error may take another one.
        self._first = name
        self._action = action

    def _target(self, call: str, target: object) -> str:
        if not isinstance(target, str):
            raise arguments.wrong(call, "a target state", "a str", target)
        if self._graph.allows(self._state, target):
            # A member of a str enum becomes the plain text that is stored.
            return target if type(target) is str else str.__str__(target)
        states = self._graph.states
        if target not in states:
            raise ActionError(f"{call}: there is no state {target!r}{did_you_mean(target, states)}")
        info = states.get(self._state)
        known = sorted(info.targets or ()) if info is not None else []
        raise ActionError(
            f"{call}: {self._state!r} does not lead to {target!r} (it leads to: {', '.join(known) or 'nowhere'}); "
            "add it to the handler's targets=[...]"
        )

    def _transitions(self, call: str, value: object) -> dict[str, str]:
        leads = arguments.leads(call, value)
        return {key: self._target(call, target) for key, target in leads.items()}

    def _finish(self) -> Action:
        info = self._graph.states.get(self._state)
        if info is not None and info.is_end:
            return Finish()
        raise ActionError(
            f"state {self._state!r}: its handler took no action; call one of `actions`, "
            "or mark the state with is_end=True"
        )
