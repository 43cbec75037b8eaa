"""Compiler: declared states and their sources in, one Graph out."""

from collections.abc import Mapping

from msgspec import Struct

from .graph import FAILED_STATE, Graph, StateInfo, version_of
from .handlers import DeclaredState, Handler
from .source_analysis import Edge, SourceEdges, read_handler


class HandlerSource(Struct, frozen=True):
    """A handler and the edges in its source."""

    handler: Handler
    reading: SourceEdges


class CompiledBlueprint(Struct, frozen=True):
    """A graph, and what only people need: labels and lines. The version knows nothing of these."""

    graph: Graph
    #: state → its handlers, read.
    sources: dict[str, list[HandlerSource]]

    def edges(self, state: str) -> list[Edge]:
        """The edges that the sources show, `fail` included."""
        found = [edge for source in self.sources[state] for edge in source.reading.edges]
        if FAILED_STATE in self.graph.states and any(source.reading.fails for source in self.sources[state]):
            found.append(Edge(FAILED_STATE, "fail", 0))
        return found


def compile_graph(blueprint: str, declared: Mapping[str, DeclaredState]) -> CompiledBlueprint:
    """The graph as declared, valid or not: an invalid one can still be drawn."""
    sources = {
        name: [HandlerSource(handler, read_handler(handler.func, name)) for handler in state.handlers]
        for name, state in declared.items()
    }
    states = {name: _info(state, sources[name], FAILED_STATE in declared) for name, state in declared.items()}
    start = next((name for name, state in declared.items() if state.is_start), "")
    graph = Graph(blueprint=blueprint, version=version_of(states), start=start, states=states)
    return CompiledBlueprint(graph, sources)


def _info(state: DeclaredState, sources: list[HandlerSource], has_failed: bool) -> StateInfo:
    return StateInfo(
        name=state.name,
        is_start=state.is_start,
        is_end=state.is_end,
        outcome=state.end_outcome if state.is_end else "finished",
        is_aggregator=state.is_aggregator,
        targets=_targets(state, sources, has_failed),
        conditions=tuple(h.condition.text for h in state.conditional if h.condition is not None),
    )


def _targets(state: DeclaredState, sources: list[HandlerSource], has_failed: bool) -> frozenset[str] | None:
    found: set[str] = set()
    for source in sources:
        handler, reading = source.handler, source.reading
        if handler.declared is not None:
            found |= handler.declared
        elif reading.computed is None or state.is_end:
            # Whatever an end state computes, it cannot lead on.
            found.update(edge.target for edge in reading.edges)
        else:
            return None
        if reading.fails and has_failed and state.name != FAILED_STATE:
            found.add(FAILED_STATE)
    return frozenset(found)
