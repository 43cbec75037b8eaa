"""StateMachineBlueprint: the script that jobs follow."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BlueprintInvalid, ConditionError
from ..model.attributes import Attributes, WrongAttribute, declared_types
from .conditions import Condition
from .context import JobContext
from .datastore import DataStores, with_store
from .graph import Graph
from .handlers import OUTCOMES, DeclaredState, Handler, HandlerFunction, handler_record
from .names import name_problem

# Who only carries a blueprint along (a worker's app may have some) never loads what reads and checks its handlers.
if TYPE_CHECKING:
    from .compiler import CompiledBlueprint

F = TypeVar("F", bound=HandlerFunction)


class StateMachineBlueprint:
    """A state machine written as functions.

    Decorators declare states and their handlers; what is wrong on the spot (a name, a condition, a second
    default handler) raises there. The rest is for `validate()`, which the orchestrator calls at
    registration. `graph` and `version` are computed when first asked for, and again after a new handler.
    """

    def __init__(
        self,
        name: str,
        api_endpoint: str | None = None,
        api_version: str | None = None,
        data_stores: Mapping[str, Any] | None = None,
        search_attributes: Mapping[str, str] | None = None,
    ) -> None:
        problem = name_problem("blueprint name", name)
        if problem is not None:
            raise BlueprintInvalid(str(name), [problem])
        self.name = name
        self.api_endpoint = api_endpoint
        self.api_version = api_version
        self.data_stores = DataStores()
        #: What its jobs can be found by: name → type (Keyword, Text, Int, Double, Bool, Datetime, KeywordList).
        self.search_attributes: Attributes = self._declared(search_attributes or {})
        self._states: dict[str, DeclaredState] = {}
        self._compiled: CompiledBlueprint | None = None
        for store_name, store in (data_stores or {}).items():
            self.add_data_store(store_name, store)

    def handler_for(
        self,
        state: str,
        is_start: bool = False,
        is_end: bool = False,
        outcome: str | None = None,
        targets: Iterable[str] | None = None,
        blocking: bool = False,
    ) -> "HandlerDecorator":
        """Declare a handler of `state`: `@bp.handler_for("s")`, or `@bp.handler_for("s").when("...")`.

        A state may have many conditional handlers, asked in their order, and one without a condition.
        Flags may stand on any of them. `outcome` ("finished" or "failed") is how a job ends here;
        `targets` names where the handler may lead when its source does not show it.
        """
        if outcome is not None and outcome not in OUTCOMES:
            raise self._invalid(f"state {state!r}: outcome: expected 'finished' or 'failed', got {outcome!r}")
        flags = DeclaredState(name=state, is_start=is_start, is_end=is_end, outcome=outcome)
        return self._registration(flags, targets, blocking)

    def aggregator_for(
        self,
        state: str,
        is_end: bool = False,
        targets: Iterable[str] | None = None,
        blocking: bool = False,
    ) -> "HandlerDecorator":
        """Declare the handler that runs once, after all parallel tasks that lead to `state` are over."""
        return self._registration(
            DeclaredState(name=state, is_end=is_end, is_aggregator=True), targets, blocking
        )

    def add_data_store(self, name: str, store: Any) -> None:
        """Lend `store` to the handlers as `context.data_stores.<name>`; a plain dict gets an async face."""
        self.data_stores = with_store(self.name, self.data_stores, name, store)

    def _declared(self, search_attributes: Mapping[str, str]) -> Attributes:
        try:
            return declared_types(search_attributes)
        except WrongAttribute as error:
            raise self._invalid(str(error)) from None

    def validate(self) -> None:
        """BlueprintInvalid with every problem, or nothing."""
        from .validation import problems_of

        problems = problems_of(self._states, self._compile())
        if problems:
            raise BlueprintInvalid(self.name, problems)

    @property
    def graph(self) -> Graph:
        """The shape of this blueprint, as declared so far."""
        return (self._compiled or self._compile()).graph

    @property
    def version(self) -> str:
        """The hash of the graph; the same on every machine and in every release."""
        return self._compile().graph.version

    @property
    def handlers(self) -> list[Handler]:
        """All handlers, state by state."""
        return [handler for state in self._states.values() for handler in state.handlers]

    def has_state(self, name: str) -> bool:
        """It has a handler for that state."""
        return name in self._states

    def select(self, state: str, context: JobContext) -> Handler | None:
        """The handler that decides: the first whose condition holds, else the one without; None if none does."""
        declared = self._states.get(state)
        if declared is None:
            return None
        for handler in declared.conditional:
            if handler.condition is not None and handler.condition.holds(context):
                return handler
        return declared.default

    def to_dot(self) -> str:
        """The graph as DOT text. Also of a blueprint that does not validate."""
        from .dot import to_dot

        return to_dot(self._compile())

    def render_graph(self, output_filename: str | Path | None = None, output_format: str = "png") -> str:
        """Draw the graph into a file, if one is given; returns the DOT text.

        The format's suffix is added when the name lacks it. Pictures need graphviz (`dot`).
        """
        dot = self.to_dot()
        if output_filename is not None:
            from .dot import write_graph

            write_graph(dot, Path(output_filename), output_format)
        return dot

    def __repr__(self) -> str:
        return f"StateMachineBlueprint({self.name!r}, {len(self._states)} states)"

    def _registration(
        self, flags: DeclaredState, targets: Iterable[str] | None, blocking: bool
    ) -> "HandlerDecorator":
        problem = name_problem("state name", flags.name)
        names = targets if targets is None or isinstance(targets, str) else list(targets)
        if problem is None and not _are_targets(names):
            problem = f"state {flags.name!r}: targets: expected a list of state names, got {names!r}"
        if problem is not None:
            raise self._invalid(problem)
        return HandlerDecorator(self, flags, None if names is None else frozenset(names), blocking)

    def _register(self, flags: DeclaredState, handler: Handler) -> None:
        declared = self._states.get(flags.name) or DeclaredState(name=flags.name)
        if declared.outcome and flags.outcome and declared.outcome != flags.outcome:
            raise self._invalid(
                f"state {flags.name!r}: outcome is both {declared.outcome!r} and {flags.outcome!r}"
            )
        problem = declared.add(handler)
        if problem is not None:
            raise self._invalid(problem)
        declared.is_start |= flags.is_start
        declared.is_end |= flags.is_end
        declared.is_aggregator |= flags.is_aggregator
        declared.outcome = declared.outcome or flags.outcome
        self._states[flags.name] = declared
        self._compiled = None

    def _compile(self) -> "CompiledBlueprint":
        if self._compiled is None:
            from .compiler import compile_graph

            self._compiled = compile_graph(self.name, self._states)
        return self._compiled

    def _invalid(self, problem: str) -> BlueprintInvalid:
        return BlueprintInvalid(self.name, [problem])


class HandlerDecorator:
    """The decorator that `handler_for` gives. It returns the function unchanged."""

    __slots__ = ("_blocking", "_blueprint", "_condition", "_flags", "_targets")

    def __init__(
        self,
        blueprint: StateMachineBlueprint,
        flags: DeclaredState,
        targets: frozenset[str] | None,
        blocking: bool,
        condition: Condition | None = None,
    ) -> None:
        self._blueprint = blueprint
        self._flags = flags
        self._targets = targets
        self._blocking = blocking
        self._condition = condition

    def when(self, condition: str) -> "HandlerDecorator":
        """Only where the condition holds. See `conditions` for the grammar."""
        state = self._flags.name
        if self._condition is not None:
            raise ConditionError(f"state {state!r}: a handler has one condition; join them with `and`")
        try:
            parsed = Condition.parse(condition)
        except ConditionError as error:
            raise ConditionError(f"state {state!r}: {error}") from None
        return HandlerDecorator(self._blueprint, self._flags, self._targets, self._blocking, parsed)

    def __call__(self, func: F) -> F:
        """Register the function as a handler."""
        state = self._flags.name
        if not callable(func):
            raise self._blueprint._invalid(f"state {state!r}: expected a function, got {func!r}")
        handler = handler_record(
            state, func, condition=self._condition, blocking=self._blocking, declared=self._targets
        )
        self._blueprint._register(self._flags, handler)
        return func


def _are_targets(names: object) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
