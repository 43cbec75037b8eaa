"""DOT: the same graph always gives the same text."""

from pathlib import Path
from typing import Any

import pytest

from regista.blueprint import StateMachineBlueprint
from regista.errors import BlueprintError, GraphvizMissing


def nothing(context: Any, actions: Any) -> None: ...


def blueprint() -> StateMachineBlueprint:
    bp = StateMachineBlueprint("drawn")

    @bp.handler_for("start", is_start=True)
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("t", {}, {"success": "gather", "partial": "gather"})

    @bp.handler_for("start").when('context.initial_data.name == "a\\b"')
    def special(context: Any, actions: Any) -> None:
        actions.transition_to("anything")

    @bp.aggregator_for("gather")
    def gather(context: Any, actions: Any) -> None:
        if context.aggregation_results:
            actions.transition_to("done")
        else:
            actions.fail("none")

    @bp.handler_for("anything")
    def anything(context: Any, actions: Any) -> None:
        actions.transition_to(context.initial_data["next"])

    bp.handler_for("done", is_end=True)(nothing)
    bp.handler_for("failed", is_end=True)(nothing)
    return bp


def test_the_drawing_shows_what_there_is_to_know() -> None:
    lines = [line.strip() for line in blueprint().to_dot().splitlines()]
    assert lines[0] == 'digraph "drawn" {'
    assert '"entry point" -> "start";' in lines
    assert (
        '"start" [label="start\\nwhen context.initial_data.name == \\"a\\\\b\\"", '
        'fillcolor="#dbeafe", penwidth="2"];' in lines
    )
    assert '"gather" [label="gather", shape="invhouse", style="filled"];' in lines
    assert '"done" [label="done", peripheries="2", fillcolor="#dcfce7", color="#15803d"];' in lines
    assert '"failed" [label="failed", peripheries="2", fillcolor="#fee2e2", color="#b91c1c"];' in lines
    assert '"start" -> "gather" [label="partial\\nsuccess"];' in lines
    assert '"start" -> "anything";' in lines
    assert '"gather" -> "done";' in lines
    assert '"gather" -> "failed" [label="fail"];' in lines
    assert '"anything" -> "any state" [style=dashed];' in lines
    assert '"any state" [label="…", shape=plaintext, style=""];' in lines


def test_start_comes_first_and_the_rest_by_name() -> None:
    dot = blueprint().to_dot()
    order = [dot.index(f'"{name}" [label=') for name in ("start", "anything", "done", "failed", "gather")]
    assert order == sorted(order)
    assert dot == blueprint().to_dot()


def test_labels_do_not_change_the_version() -> None:
    def version(status: str) -> str:
        bp = StateMachineBlueprint("b")

        @bp.handler_for("start", is_start=True)
        def start(context: Any, actions: Any) -> None:
            actions.dispatch_task("t", {}, {status: "done"})

        bp.handler_for("done", is_end=True)(nothing)
        assert f'[label="{status}"]' in bp.to_dot()
        return bp.version

    assert version("success") == version("anything")


def test_an_invalid_blueprint_can_still_be_drawn() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("s")
    def s(context: Any, actions: Any) -> None:
        actions.transition_to("nowhere")

    assert '"s" -> "nowhere";' in bp.to_dot()


def test_a_picture_without_graphviz_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GraphvizMissing, match="cannot write png: the program `dot` was not found"):
        blueprint().render_graph(tmp_path / "picture")


def fake_dot(folder: Path, script: str) -> None:
    binary = folder / "dot"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)


def test_a_picture_is_written_through_the_dot_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in that keeps what it was told: graphviz itself is not ours to test.
    fake_dot(tmp_path, 'echo "$1" > "$3"; /bin/cat >> "$3"')
    monkeypatch.setenv("PATH", str(tmp_path))
    dot = blueprint().render_graph(tmp_path / "picture.v2", "svg")
    assert (tmp_path / "picture.v2.svg").read_text() == f"-Tsvg\n{dot}"


def test_a_failure_of_the_dot_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dot(tmp_path, "echo 'format nope not recognized' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BlueprintError, match="format nope not recognized"):
        blueprint().render_graph(tmp_path / "picture", "nope")
