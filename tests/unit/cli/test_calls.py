import io
import sys
from pathlib import Path

import pytest

from regista.cli.calls import parse_json_object, parse_optional_object
from regista.cli.errors import UsageError, check_state_dir


def test_an_object_is_typed_or_lies_in_a_file_or_comes_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.json").write_text('{"a": 1}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))

    assert parse_json_object("--input", '{"a": 1}') == {"a": 1}
    assert parse_json_object("--input", f"@{tmp_path / 'input.json'}") == {"a": 1}
    assert parse_json_object("--input", "-") == {"a": 1}
    assert parse_optional_object("--data", None) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r'expected a JSON object like {"name": "Ada"}, got no JSON \(Input data was truncated\)'),
        ("", "got nothing at all"),
        (" ", "got nothing at all"),
        ("3", "got a number"),
        ("null", "got null"),
        ('"x"', "got a string"),
        ("true", "got true or false"),
        ('{"a": NaN}', "expected a JSON object"),
        ("@/no/such/file", "cannot read /no/such/file: No such file or directory"),
        ("\udcff", "expected a JSON object"),
    ],
)
def test_anything_else_is_refused_by_the_flags_name(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^--input: .*{words}"):
        parse_json_object("--input", text)


def test_a_directory_that_is_one_level_too_high_is_told_from_the_right_one(tmp_path: Path) -> None:
    state = tmp_path / ".regista"
    state.mkdir()
    check_state_dir(str(tmp_path))  # nobody has served here yet

    (state / "client.token").write_text("secret")
    check_state_dir(None)
    check_state_dir(str(state))
    with pytest.raises(UsageError, match=rf"did you mean --dir {state}\?"):
        check_state_dir(str(tmp_path))
