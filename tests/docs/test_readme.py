"""The README's program is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readmes_program_runs_and_says_hello(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "hello.py").write_text(program)

    done = subprocess.run(
        [sys.executable, "hello.py"], cwd=tmp_path, capture_output=True, text=True, timeout=9
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished Hello, Ada!\n"
    assert (tmp_path / ".regista" / "jobs.db").exists()
