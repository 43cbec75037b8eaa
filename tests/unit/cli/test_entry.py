import json

import pytest

from regista.cli import main
from regista.cli.refusals import UsageError, exit_of, words_of
from regista.errors import ApiError, ConfigError, JobNotFound, Unreachable


def test_version_is_said_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("regista ")

    assert main(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"regista", "python"}


def test_an_error_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["jobs", "run", "greet", "--input", "[1]"])

    assert code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == 'regista: --input: expected a JSON object like {"name": "Ada"}, got a list\n'


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        main(["jobs", "run", "greet", "--input", "[1]", "--debug"])
    monkeypatch.setenv("REGISTA_DEBUG", "true")
    with pytest.raises(UsageError):
        main(["jobs", "run", "greet", "--input", "[1]"])


def test_a_wrong_setting_is_a_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGISTA_URL", "nonsense")

    assert main(["jobs", "list"]) == 2
    assert capsys.readouterr().err == "regista: REGISTA_URL: expected an http or https URL, got 'nonsense'\n"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("wrong"), 2, "wrong"),
        (ConfigError("TZ", "a zone", "x"), 2, "TZ: expected a zone, got 'x'"),
        (JobNotFound("j1"), 1, "job j1: not found"),
        (Unreachable("http://h", "Connection refused"), 6, "no orchestrator answers at http://h"),
        (ApiError(401, "token_unknown", "this client token is not known here"), 1, "Set CLIENT_TOKEN"),
        (OSError(98, "address already in use"), 1, "--port"),
        (KeyError("x"), 1, "--debug shows the traceback"),
    ],
)
def test_every_error_has_words_and_an_exit_code(error: Exception, code: int, words: str) -> None:
    assert exit_of(error) == code
    assert words in words_of(error)
