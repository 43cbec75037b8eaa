"""Branches: the `dispatch_task` calls of one handler, and the aggregator that they share."""

from msgspec import Struct, field

from ..errors import ActionError
from .decisions import Dispatch, FanOut, Order
from .graph import Graph


class Branches(Struct, eq=False):
    """One call to an ordinary state is a Dispatch; calls that lead to one aggregator are a FanOut.

    A single call that leads to an aggregator is a fan-out of one. The targets exist: that was checked.
    """

    _graph: Graph
    _orders: list[Order] = field(default_factory=list)
    _aggregator: str | None = None

    def add(self, call: str, order: Order) -> None:
        """Take one more order, or raise ActionError and change nothing."""
        aggregator = self._meeting_point(call, order.transitions)
        if self._orders and (aggregator is None or aggregator != self._aggregator):
            raise self._apart(call, order)
        self._orders.append(order)
        self._aggregator = aggregator

    def action(self) -> Dispatch | FanOut:
        """The wish that the orders add up to."""
        if self._aggregator is not None:
            return FanOut(tuple(self._orders), self._aggregator)
        return Dispatch(self._orders[0])

    def _meeting_point(self, call: str, transitions: dict[str, str]) -> str | None:
        """The aggregator that all of them lead to; None if none of them leads to any."""
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

    def _apart(self, call: str, order: Order) -> ActionError:
        before = next(iter(self._orders[0].transitions.values()))
        now = next(iter(order.transitions.values()))
        states = self._graph.states
        others = [repr(name) for name in dict.fromkeys((before, now)) if not states[name].is_aggregator]
        why = f" (not an aggregator: {', '.join(others)})" if others else ""
        return ActionError(
            f"{call}: an earlier call leads to {before!r}, this one to {now!r}{why}; "
            "parallel tasks must all lead to one and the same aggregator"
        )
