import io
import sys
from pathlib import Path

import pytest

from regista.cli.calls import maybe_object_in, object_in
from regista.cli.refusals import UsageError


def test_an_object_is_typed_or_lies_in_a_file_or_comes_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.json").write_text('{"a": 1}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))

    assert object_in("--input", '{"a": 1}') == {"a": 1}
    assert object_in("--input", f"@{tmp_path / 'input.json'}") == {"a": 1}
    assert object_in("--input", "-") == {"a": 1}
    assert maybe_object_in("--data", None) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected a JSON object"),
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
        object_in("--input", text)
