"""A backup of an SQLite store is made and restored with the commands of the how-to page."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "backup.md").read_text()
SQLITE = PAGE.split("## SQLite")[1].split("\n## ")[0]
#: Stands in for the program `sqlite3` where there is none: the file, and what to do with it.
SHELL = f"""#!{sys.executable}
import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
store.execute(sys.argv[2])
store.close()
"""
STOPPED, AT_WORK, RESTORED = re.findall(r"```sh\n(.*?)```", SQLITE, re.DOTALL)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    (tmp_path / "backup").mkdir()
    house = House(tmp_path)
    if shutil.which("sqlite3") is None:
        (tmp_path / "sqlite3").write_text(SHELL)
        (tmp_path / "sqlite3").chmod(0o700)
        house.set(PATH=f"{tmp_path}:{house.env['PATH']}")
    yield house
    house.close()


def do(house: House, commands: str) -> None:
    """The commands of the page, except the one that stays; `/backup` is a directory of the test."""
    commands = commands.replace("/backup/", "backup/").replace("regista serve app.py", "")
    done = house.shell(commands)
    assert done.returncode == 0, done.stderr


def listed(house: House) -> list[str]:
    return [line.split()[0] for line in house.said("jobs", "list").splitlines()[1:]]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("at_work", [True, False])
def test_jobs_and_history_are_back_as_they_were(house: House, at_work: bool) -> None:
    serving = house.serve()
    job = house.said("jobs", "run", "ask").strip()
    if at_work:
        do(house, AT_WORK)
    else:
        house.end(serving)
        do(house, STOPPED)
        serving = house.serve()
    later = house.said("jobs", "run", "ask").strip()
    assert listed(house) == [later, job]
    house.end(serving)

    do(house, RESTORED)
    house.serve()

    assert listed(house) == [job]
    assert house.said("jobs", "approve", job)
    assert house.said("jobs", "watch", job).splitlines()[-1] == '"yes"'
    history = house.said("jobs", "history", job)
    assert [word in history for word in ("job_created", "approval_requested", "job_finished")] == 3 * [True]


def test_the_page_names_every_file_that_a_store_leaves(house: House) -> None:
    serving = house.serve()
    house.said("jobs", "run", "ask")
    there = {path.name for path in (house.folder / ".regista").iterdir()} - {".gitignore"}
    house.end(serving)

    patterns = re.findall(r"`([\w.*-]+)`", " ".join(re.findall(r"^\| `.*? \|", SQLITE, re.MULTILINE)))

    assert {name for name in there if not any(Path(name).match(each) for each in patterns)} == set()
