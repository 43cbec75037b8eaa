"""DOT: a graph drawn for people. The same graph always gives the same text."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ..errors import BlueprintError, GraphvizMissing
from .compiler import CompiledBlueprint
from .graph import StateInfo

_HEAD = [
    "  rankdir=LR;",
    '  node [shape=box, style="rounded,filled", fillcolor="#ffffff", color="#334155", fontname="Helvetica"];',
    '  edge [color="#64748b", fontname="Helvetica", fontsize=10];',
]
#: Formats that are the text itself and need no graphviz.
_TEXT_FORMATS = frozenset({"dot", "gv"})
#: Ids that no state can have: a name has no space.
_ENTRY, _ANYWHERE = "entry point", "any state"


def to_dot(compiled: CompiledBlueprint) -> str:
    """The DOT text: start first, then by name; labels of edges where the source shows them."""
    graph = compiled.graph
    names = sorted(graph.states, key=lambda name: (name != graph.start, name))
    lines = [f"digraph {_quoted(graph.blueprint)} {{", *_HEAD]
    if graph.start:
        lines.append(f"  {_quoted(_ENTRY)} [shape=point, width=0.15];")
        lines.append(f"  {_quoted(_ENTRY)} -> {_quoted(graph.start)};")
    lines += [_node(graph.states[name]) for name in names]
    if any(info.targets is None for info in graph.states.values()):
        lines.append(f'  {_quoted(_ANYWHERE)} [label="…", shape=plaintext, style=""];')
    for name in names:
        lines += _edges(compiled, name)
    return "\n".join([*lines, "}", ""])


def write_graph(dot: str, path: Path, output_format: str) -> Path:
    """Write the drawing to `path` (its suffix is added when missing); the path that was written."""
    if path.suffix != f".{output_format}":
        path = path.with_name(f"{path.name}.{output_format}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if output_format in _TEXT_FORMATS:
        path.write_text(dot, encoding="utf-8")
        return path
    binary = shutil.which("dot")
    if binary is None:
        raise GraphvizMissing(output_format)
    command = [binary, f"-T{output_format}", "-o", str(path)]
    run = subprocess.run(command, input=dot.encode(), capture_output=True, check=False)
    if run.returncode != 0:
        raise BlueprintError(
            f"graphviz could not write {path}: {run.stderr.decode(errors='replace').strip()}"
        )
    return path


def _node(info: StateInfo) -> str:
    attributes = {"label": "\n".join([info.name, *(f"when {text}" for text in info.conditions)])}
    if info.is_aggregator:
        attributes["shape"] = "invhouse"
        attributes["style"] = "filled"
    if info.is_start:
        attributes["fillcolor"] = "#dbeafe"
        attributes["penwidth"] = "2"
    if info.is_end:
        attributes["peripheries"] = "2"
        failed = info.outcome == "failed"
        attributes["fillcolor"] = "#fee2e2" if failed else "#dcfce7"
        attributes["color"] = "#b91c1c" if failed else "#15803d"
    return f"  {_quoted(info.name)} [{_attributes(attributes)}];"


def _edges(compiled: CompiledBlueprint, name: str) -> Iterable[str]:
    labels: dict[str, set[str]] = {target: set() for target in compiled.graph.states[name].targets or ()}
    for edge in compiled.edges(name):
        labels.setdefault(edge.target, set()).add(edge.label)
    for target in sorted(labels):
        label = "\n".join(sorted(labels[target] - {""}))
        suffix = f" [{_attributes({'label': label})}]" if label else ""
        yield f"  {_quoted(name)} -> {_quoted(target)}{suffix};"
    if compiled.graph.states[name].targets is None:
        yield f"  {_quoted(name)} -> {_quoted(_ANYWHERE)} [style=dashed];"


def _attributes(attributes: dict[str, str]) -> str:
    return ", ".join(f"{key}={_quoted(value)}" for key, value in attributes.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
    return f'"{escaped}"'
