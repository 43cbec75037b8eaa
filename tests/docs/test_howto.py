"""Every program in the how-to pages is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("howto/*.md"))


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


CASES = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(programs(page), 1)
]

#: Appended to a program: its blueprints are valid, and can be drawn.
CHECK = """
from regista import StateMachineBlueprint

for thing in list(globals().values()):
    if isinstance(thing, StateMachineBlueprint):
        thing.validate()
        assert "digraph" in thing.render_graph()
"""


def test_there_are_programs_to_run() -> None:
    assert len(CASES) >= 5


@pytest.mark.parametrize("program", CASES)
def test_a_program_of_the_documentation_runs(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program + CHECK)

    # One that serves would do so for ever; test_webhooks_page.py lets it hear something.
    start = ["-c", "import program"] if "web.run_app(" in program else ["program.py"]
    done = subprocess.run(
        [sys.executable, "-W", "error", *start], cwd=tmp_path, capture_output=True, text=True, timeout=9
    )

    assert done.returncode == 0, done.stderr
