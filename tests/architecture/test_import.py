"""`import regista` is quick and small. Each look is a process of its own: this one has loaded everything."""

import json
import subprocess
import sys

import pytest

#: Seconds of a core that `import regista` may take.
LIMIT_S = 0.150

#: Measured inside, after the interpreter has started, so that only the import itself counts.
PROGRAM = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
{statement}
seconds = time.process_time() - start
print(json.dumps([seconds, sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})]))
"""

FIRST_USE = "import regista; regista.OrchestratorEngine"


def look(statement: str) -> tuple[float, set[str]]:
    """How long `statement` takes in a fresh interpreter, and which packages it loads beyond the bare one."""
    program = PROGRAM.format(statement=statement)
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, packages = json.loads(answer.stdout)
    return seconds, set(packages)


def test_import_regista_is_quick() -> None:
    best = min(look("import regista")[0] for _ in range(5))

    assert best < LIMIT_S


@pytest.mark.parametrize("statement", ["import regista", FIRST_USE, "import regista.worker"])
def test_only_the_standard_library_and_msgspec_are_loaded(statement: str) -> None:
    packages = look(statement)[1]

    # msgspec itself looks for typing_extensions; type checkers bring it along.
    assert packages - sys.stdlib_module_names <= {"regista", "msgspec", "typing_extensions"}


def test_import_regista_loads_no_room_before_it_is_used() -> None:
    program = "import sys, regista; print(*(name for name in sys.modules if name.startswith('regista.')))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.split() == []
