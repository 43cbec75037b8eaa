"""The tutorial, done as it stands there: files are saved, commands are run, and what it shows is what comes."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
#: (the name of the file that the text before it asks for, language, text) of every block.
BLOCKS = re.findall(r"(?:Save this as `([\w.]+)`:\n\n)?```(\w+)\n(.*?)```", PAGE, re.DOTALL)
#: What making the environment of the tests has done already.
DONE_BEFORE = re.compile(r"python3 -m venv .*|pip install .*")
#: Commands that stay; in the tutorial each has a terminal of its own.
STAYS = re.compile(r"regista (serve|worker) (\S+)")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, app="")
    yield house
    house.close()


def fits(shown: str, said: str) -> bool:
    """Each line of what is shown is there, in that order; `…` stands for anything that changes."""
    rest = said.splitlines()
    for line in shown.splitlines():
        pattern = re.compile(
            r"\s*".join(re.escape(part) for part in re.split(r"\s+", line)).replace("…", ".*")
        )
        while rest and not pattern.fullmatch(rest[0].strip()):
            rest.pop(0)
        if not rest:
            return False
        rest.pop(0)
    return True


class Reader:
    """Somebody who does what the tutorial says."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._orchestrator: subprocess.Popen[str] | None = None
        self._workers = 0
        self.said = ""

    def do(self, commands: str) -> None:
        """One block of commands."""
        commands = "\n".join(line for line in commands.splitlines() if not DONE_BEFORE.fullmatch(line))
        if stays := STAYS.fullmatch(commands.strip()):
            self._stay(stays[1], stays[2])
        elif commands.strip():
            # The client's terminal keeps its variables from one block to the next.
            script = f". ./kept 2>/dev/null || true\n{commands}\n(declare -p JOB > kept) 2>/dev/null || true"
            done = self._house.shell(script)
            assert done.returncode == 0, f"{commands}\n{done.stderr}{self._house.logs()}"
            self.said = done.stdout

    def _stay(self, verb: str, app: str) -> None:
        if verb == "worker":
            self._house.start("worker", app)
            self._workers += 1
            self._house.until(lambda: self._connected() == self._workers, "the worker")
            return
        if self._orchestrator is not None:
            assert self._house.end(self._orchestrator, signal.SIGINT) == 0  # Ctrl-C, as the text says
        self._orchestrator = self._house.start("serve", app)
        assert self._orchestrator.stdout is not None
        self.said = self._orchestrator.stdout.readline()

    def _connected(self) -> int:
        return self._house.run("workers", "list").stdout.count("ready")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_tutorial_does_what_it_says(house: House) -> None:
    reader = Reader(house)
    shown = 0
    for name, language, text in BLOCKS:
        if name:
            (house.folder / name).write_text(text)
        elif language == "sh":
            reader.do(text)
        else:
            assert language == "text"
            assert fits(text, reader.said), f"shown:\n{text}\nsaid:\n{reader.said}{house.logs()}"
            shown += 1
    assert shown >= 6
    assert (house.folder / "album.dot").read_text().startswith("digraph")


def test_every_block_is_a_file_a_command_or_what_it_says() -> None:
    assert len(BLOCKS) == PAGE.count("```") / 2
    assert {language for _, language, _ in BLOCKS} == {"python", "sh", "text"}
    assert all(name for name, language, _ in BLOCKS if language == "python")
