"""The README's program and its two commands are run as they stand there."""

import re
from pathlib import Path

import pytest

from tests.acceptance.processes import House

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_the_readmes_program_runs_and_says_hello(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    dev, run = re.search(r"```sh\n(regista dev hello.py)\n(regista jobs run .*)\n```", README).groups()  # type: ignore[union-attr]
    house = House(tmp_path)
    (tmp_path / "hello.py").write_text(program)
    try:
        process = house.start(*dev.split()[1:])
        assert process.stdout is not None
        assert house.url in process.stdout.readline(), house.logs()

        done = house.shell(run)
    finally:
        house.close()

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == '"Hello, Ada!"'
    assert (tmp_path / ".regista" / "jobs.db").exists()


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (Path(__file__).parents[2] / link).exists()
