"""Validation: all problems of a blueprint at once, each with its state."""

from collections.abc import Callable, Mapping

from .compiler import CompiledBlueprint, HandlerSource
from .graph import FAILED_STATE, Graph
from .handlers import DeclaredState, signature_problem
from .names import did_you_mean


def problems_of(declared: Mapping[str, DeclaredState], compiled: CompiledBlueprint) -> list[str]:
    """All problems, in the order in which one would mend them. Empty: the blueprint can be followed."""
    found = _start_problems(declared)
    for name, state in declared.items():
        if state.outcome is not None and not state.is_end:
            found.append(f"state {name!r}: outcome={state.outcome!r} is for end states only; add is_end=True")
        for source in compiled.sources[name]:
            found += _handler_problems(state, source, compiled.graph)
    # With a wrong target or start, what cannot be reached is only an echo of it.
    if not found:
        found += _unreachable(compiled.graph) + _endless(compiled)
    return found


def _start_problems(declared: Mapping[str, DeclaredState]) -> list[str]:
    starts = [name for name, state in declared.items() if state.is_start]
    if len(starts) == 1:
        return []
    if not starts:
        return ["expected exactly one start state, got none; mark one with is_start=True"]
    return [f"expected exactly one start state, got {len(starts)}: {', '.join(map(repr, starts))}"]


def _handler_problems(state: DeclaredState, source: HandlerSource, graph: Graph) -> list[str]:
    handler, reading = source.handler, source.reading
    place = f"state {state.name!r}: {handler.name} at {handler.location}"
    found = []
    problem = signature_problem(handler)
    if problem is not None:
        found.append(f"{place} {problem}")
    for target in sorted(handler.declared or ()):
        found += _target_problems(place, "targets=[...] names", target, state, graph)
    file = handler.location.rpartition(":")[0]
    for edge in sorted(set(reading.edges)):
        where = f"state {state.name!r}: {handler.name} at {file}:{edge.line}"
        found += _target_problems(where, "leads to", edge.target, state, graph)
        if handler.declared is not None and edge.target not in handler.declared | {FAILED_STATE}:
            found.append(f"{where} leads to {edge.target!r}, which its targets=[...] do not name")
    return found


def _target_problems(place: str, verb: str, target: str, state: DeclaredState, graph: Graph) -> list[str]:
    if target not in graph.states:
        return [f"{place} {verb} {target!r}, which is not a state{did_you_mean(target, graph.states)}"]
    if state.is_end:
        return [f"{place} {verb} {target!r}, but an end state cannot lead on"]
    return []


def _unreachable(graph: Graph) -> list[str]:
    # `failed` is reached from everywhere, by unknown statuses and timeouts.
    roots = {graph.start} | ({graph.failed_state} if graph.failed_state else set())

    def onwards(name: str) -> frozenset[str]:
        targets = graph.states[name].targets
        return frozenset(graph.states) if targets is None else targets

    reached = _closure(roots, onwards)
    return [f"state {name!r}: nothing leads to it" for name in graph.states if name not in reached]


def _endless(compiled: CompiledBlueprint) -> list[str]:
    graph = compiled.graph
    ends = {name for name, info in graph.states.items() if info.is_end}
    # A handler that calls `fail` ends the job as surely as an end state does.
    ends |= {name for name, read in compiled.sources.items() if any(source.reading.fails for source in read)}
    if not ends:
        return ["expected at least one end state, got none; mark one with is_end=True"]

    def backwards(name: str) -> frozenset[str]:
        return frozenset(
            other for other, info in graph.states.items() if info.targets is None or name in info.targets
        )

    ending = _closure(ends, backwards)
    return [
        f"state {name!r}: no end state can be reached from it" for name in graph.states if name not in ending
    ]


def _closure(roots: set[str], step: Callable[[str], frozenset[str]]) -> set[str]:
    seen, waiting = set(roots), list(roots)
    while waiting:
        fresh = step(waiting.pop()) - seen
        seen |= fresh
        waiting += fresh
    return seen
