import sys
from pathlib import Path

import pytest

from tests.conftest import Require

NOWHERE = "no-such-program-anywhere"


def test_what_is_there_is_found(require: Require, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))

    assert require(Path(sys.executable).name) == sys.executable


def test_what_is_missing_skips_at_home(require: Require, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match=NOWHERE):
        require(NOWHERE)


def test_what_is_missing_fails_in_ci(require: Require, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match=NOWHERE):
        require(NOWHERE)
