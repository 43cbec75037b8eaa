"""Every command and flag has its line in the reference, and every exit code."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista.cli import exit_codes
from regista.cli.parser import build_parser

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
#: Command → the text below its heading.
SECTIONS = dict(
    re.findall(
        r"^### `(regista [a-z ]+?)(?: [A-Z\[][^\n]*)?`\n\n(.*?)(?=\n#|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
)
#: Told once for all.
COMMON = {"-h", "--json", "--debug"}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for child in action.choices.values():
            yield from commands(child)
    if not below:
        yield parser


COMMANDS = {parser.prog: parser for parser in commands(build_parser())}


def test_every_command_has_its_section_and_every_section_its_command() -> None:
    assert list(SECTIONS) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_tells_every_flag(name: str) -> None:
    talks = COMMANDS[name].prog.split()[1] not in {"serve", "dev", "worker", "version"}
    common = COMMON | ({"--url", "--dir"} if talks else set())
    flags = {
        action.option_strings[0]
        for action in COMMANDS[name]._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    }
    told = set(re.findall(r"^- `(--[a-z-]+)", SECTIONS[name], re.MULTILINE))

    assert told == flags - common


def test_every_exit_code_has_its_row() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == codes
