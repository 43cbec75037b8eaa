import logging
from pathlib import Path

import pytest

from regista.cli.parser import build_parser
from regista.cli.refusals import UsageError
from regista.cli.serve import _leave_address, config_for
from regista.config import Config
from regista.errors import ConfigError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTA_STORAGE", "REGISTA_DIR", "CLIENT_TOKEN", "WORKER_TOKEN", "API_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def config_of(*flags: str) -> Config:
    return config_for(build_parser().parse_args(["serve", "app.py", *flags]))


def test_a_store_lies_in_our_own_directory_or_in_one_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_of().storage == "sqlite:.regista/jobs.db"
    assert config_of("--dir", "new/state").storage == "sqlite:new/state/jobs.db"
    assert config_of("--storage", "sqlite:here.db").storage == "sqlite:here.db"

    with pytest.raises(UsageError, match=r"^--storage: .*`mkdir -p nowhere` makes it"):
        config_of("--storage", "sqlite:nowhere/jobs.db")
    monkeypatch.setenv("REGISTA_STORAGE", "sqlite:nowhere/jobs.db")
    with pytest.raises(ConfigError, match=r"^REGISTA_STORAGE: .*`mkdir -p nowhere` makes it"):
        config_of()


def test_an_address_beyond_loopback_names_every_token_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^CLIENT_TOKEN and WORKER_TOKEN: .*; set both"):
        config_of("--host", "0.0.0.0")
    monkeypatch.setenv("CLIENT_TOKEN", "one")
    with pytest.raises(UsageError, match=r"^WORKER_TOKEN: .*; set it"):
        config_of("--host", "0.0.0.0")
    monkeypatch.setenv("WORKER_TOKEN", "two")
    assert config_of("--host", "0.0.0.0").api_host == "0.0.0.0"


def test_an_address_that_cannot_be_left_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    caplog.set_level(logging.WARNING, "regista")

    _leave_address(Config(state_dir="file"), "http://127.0.0.1:1")
    _leave_address(Config(state_dir="other", api_host="0.0.0.0"), "http://0.0.0.0:1")

    assert "cannot write the address into file" in caplog.text
    assert not Path("other").exists()
