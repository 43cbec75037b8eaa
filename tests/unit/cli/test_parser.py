import argparse
import importlib
import inspect
import re
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from regista.cli.parser import STATUSES, build_parser
from regista.config import CONNECTION_SETTINGS, SETTINGS, WORKER_SETTINGS
from regista.model import JobStatus

#: Seconds that `regista --help` may take, on a processor of its own: waiting for one is not its fault.
LIMIT_S = 0.25
#: Flags that describe one call, and so are no settings.
OF_ONE_CALL = {
    *("--help", "--version", "--input", "--wait", "--key", "--priority", "--timeout", "--status"),
    *("--blueprint", "--limit", "--reason", "--decision", "--comment", "--data", "--format", "--output"),
    *(
        "--app",
        "--offline",
        "--no-reload",
        "--report-files",
        "--parent",
        "--worker",
        "--client",
        "--operator",
    ),
    *("--state", "--actor", "--action", "--target"),
    *(
        "--timeline",
        "--count",
        "--every",
        "--daily-at",
        "--weekly-days",
        "--monthly-dates",
        "--time",
        "--cron",
    ),
    *("--timezone", "--overlap", "--catch-up", "--jitter", "--paused", "--members"),
    *("--get", "--put", "--link", "--name", "--force", "--value", "--webhook", "--attribute"),
    *("--query", "--by", "--dispatch-timeout", "--result-timeout", "--strict"),
}


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    """Every parser of the tree that does something."""
    parser = parser or build_parser()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for child in action.choices.values():
            yield from commands(child)
    if not below:
        yield parser


def choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The first words that it knows."""
    (below,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(below.choices)


@pytest.mark.parametrize("name", choices(build_parser()))
def test_a_command_alone_is_described_as_among_all_the_others(name: str) -> None:
    alone, among = build_parser([name, "--help"]), build_parser()

    assert list(choices(alone)) == [name]
    assert choices(alone)[name].format_help() == choices(among)[name].format_help()
    assert [one.format_help() for one in commands(alone)] == [
        one.format_help() for one in commands(among) if one.prog.split()[1] == name
    ]
    assert alone.format_usage() == among.format_usage()


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["nonsense"], ["--help", "serve"]])
def test_words_that_begin_with_no_command_are_for_the_whole_parser(words: list[str]) -> None:
    assert build_parser(words).format_help() == build_parser().format_help()


def test_every_command_leads_to_a_function() -> None:
    for parser in commands():
        noun, _, verb = parser.get_default("run").partition(".")
        assert inspect.isfunction(getattr(importlib.import_module(f"regista.cli.{noun}"), verb))


def test_every_flag_that_is_a_setting_names_its_variable() -> None:
    known = {setting.env for setting in (*SETTINGS, *WORKER_SETTINGS, *CONNECTION_SETTINGS)}
    for parser in commands():
        for action in parser._actions:
            if action.option_strings and not OF_ONE_CALL & set(action.option_strings):
                named = re.search(r"\[(\w+)\]$", action.help or "")
                assert named, f"{parser.prog} {action.option_strings}"
                assert named[1] in known


def test_the_statuses_are_those_of_the_model() -> None:
    assert list(STATUSES) == [status.value for status in JobStatus]


@pytest.mark.parametrize(
    "line",
    [
        "serve app.py --host 127.0.0.1 --port 8080 --storage memory",
        "worker app.py --url http://127.0.0.1:8080 --concurrency 4",
        "worker app.py --url http://127.0.0.1:8080",
        "jobs run greet --input {} --wait",
        "jobs run greet --json --input @file --key k --priority 2 --wait --timeout 5",
        "worker app.py --queue a --queue b",
        "worker app.py:gpu --worker cpu --worker net",
    ],
)
def test_the_fixed_forms_are_understood(line: str) -> None:
    assert build_parser().parse_args(line.split()).run


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("jobs list --limit many", "expected a whole number, 1 or more, got many"),
        ("jobs list --limit 0", "expected a whole number, 1 or more, got 0"),
        ("jobs watch j --timeout -5", "expected seconds, 0 or more, got -5"),
        ("jobs run b --wait --timeout nan", "expected seconds, 0 or more, got nan"),
        ("jobs run b --priority high", "expected a number, got high"),
        ("serve app.py --port x", "expected a whole number, got x"),
        ("schedules create s b --every 1w", "expected seconds, or a length like 15m, 1h or 1d, got 1w"),
        ("schedules create s b --every 0h", "expected seconds, or a length like 15m, 1h or 1d, got 0h"),
    ],
)
def test_a_wrong_number_is_told_in_words(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(line.split())
    assert end.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(words)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172800)]
)
def test_an_interval_has_a_unit_where_it_is_not_in_seconds(text: str, seconds: int) -> None:
    assert build_parser().parse_args(["schedules", "create", "s", "b", "--every", text]).every == seconds


def test_flags_that_have_a_default_say_it() -> None:
    named = {"--dir": "default .regista", "--host": "default 127.0.0.1", "--port": "default 8080"}
    for parser in commands():
        for action in parser._actions:
            for flag in set(action.option_strings) & named.keys():
                assert named[flag] in (action.help or ""), parser.prog


def test_every_command_says_what_it_does() -> None:
    assert [parser.prog for parser in commands() if not parser.description] == []


def test_a_dash_is_standard_output() -> None:
    for line in ("history export -o -", "blueprints graph b -o -"):
        assert build_parser().parse_args(line.split()).output is None


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    program = (
        "import sys, regista.cli\n"
        "try: regista.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'rich', 'aiohttp', 'asyncio', 'msgspec', 'sqlite3'} & set(sys.modules), 'too much'"
    )
    spent = []
    for _ in range(3):
        began = cpu_of_children()
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        spent.append(cpu_of_children() - began)

    assert min(spent) < LIMIT_S


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    from regista.cli import main

    assert main([]) == 0
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("noun", ["jobs", "tokens", "schedules"])
def test_a_noun_alone_lists_its_verbs(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    from regista.cli import main

    assert main([noun]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: regista {noun} ")
    assert "verbs:" in said


@pytest.mark.parametrize(
    ("words", "json", "debug"),
    [
        (["--json", "jobs", "show", "--", "j1"], True, None),
        (["--debug", "jobs", "show", "--json", "j1"], True, True),
        (["jobs", "show", "j1"], None, None),
    ],
)
def test_common_flags_before_a_command_are_no_arguments_of_it(
    words: list[str], json: bool | None, debug: bool | None
) -> None:
    parsed = build_parser(words).parse_args(words)

    assert (parsed.json, parsed.debug, parsed.job_id) == (json, debug, "j1")
