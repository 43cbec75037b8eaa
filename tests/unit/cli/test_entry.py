import json

import pytest

from regista.cli import main
from regista.cli.errors import UsageError, error_message, exit_code_for
from regista.errors import ApiError, ConfigError, JobNotFound, Unreachable


def test_version_is_said_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("regista ")

    assert main(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"regista", "python"}


def test_json_and_debug_may_stand_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "version"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"regista", "python"}

    assert main(["--json", "--debug", "jobs", "run", "greet", "--input", "[1]"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["jobs", "run", "greet", "--input", "[1]"])

    assert code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == 'regista: --input: expected a JSON object like {"name": "Ada"}, got a list\n'


def test_debug_adds_the_traceback_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "run", "greet", "--input", "[1]", "--debug"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("regista: --input: expected a JSON object")

    monkeypatch.setenv("REGISTA_DEBUG", "true")
    assert main(["jobs", "run", "greet", "--input", "[1]"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_wrong_setting_is_a_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTA_URL", "nonsense")

    assert main(["jobs", "list"]) == 2
    assert capsys.readouterr().err == "regista: REGISTA_URL: expected an http or https URL, got 'nonsense'\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("jobs list --limit 0", "--limit: expected a whole number, 1 or more, got 0"),
        ("jobs list --url nonsense", "--url: expected an http or https URL, got 'nonsense'"),
        ("jobs run greet --timeout 5", "--timeout: bounds --wait, and there is none"),
        ("jobs fork j1 --timeout 5", "--timeout: bounds --wait, and there is none"),
        ("worker app.py --concurrency -1", "--concurrency: expected a whole number, 0"),
        ("worker app.py --log-level loud", "--log-level: expected one of DEBUG"),
        ("serve app.py --port 99999", "--port: expected a whole number from 0 to 65535, got 99999"),
    ],
)
def test_a_wrong_flag_is_told_by_its_name(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(command.split())
    except SystemExit as left:  # argparse
        code = int(left.code or 0)

    assert code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("wrong"), 2, "wrong"),
        (ConfigError("TZ", "a zone", "x"), 2, "TZ: expected a zone, got 'x'"),
        (JobNotFound("j1"), 1, "job j1: not found"),
        (Unreachable("http://h", "Connection refused"), 6, "no orchestrator answers at http://h"),
        (ApiError(401, "token_unknown", "this client token is not known here"), 1, "Set CLIENT_TOKEN"),
        (OSError(98, "address already in use"), 1, "address already in use (choose another with --port)"),
        (KeyError("x"), 1, "--debug shows the traceback"),
    ],
)
def test_every_error_has_words_and_an_exit_code(error: Exception, code: int, words: str) -> None:
    assert exit_code_for(error) == code
    assert words in error_message(error)
