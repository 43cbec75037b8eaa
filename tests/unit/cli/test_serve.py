import logging
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regista.cli.errors import UsageError
from regista.cli.parser import build_parser
from regista.cli.serve import _leave_address, config_for, take_descriptors, tokens_of
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


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({}, "in .regista/"),
        ({"client_token": "c", "worker_token": "w"}, "CLIENT_TOKEN and WORKER_TOKEN"),
        ({"clients_config_path": "clients.toml"}, "clients.toml and .regista/worker.token"),
        ({"workers_config_path": "workers.toml"}, ".regista/client.token and workers.toml"),
        ({"client_token": "c"}, "CLIENT_TOKEN and .regista/worker.token"),
        ({"clients_config_path": "c.toml", "worker_token": "w"}, "c.toml and WORKER_TOKEN"),
        ({"clients_config_path": "c.toml", "workers_config_path": "w.toml"}, "c.toml and w.toml"),
    ],
)
def test_the_banner_names_where_the_tokens_are(settings: dict[str, Any], places: str) -> None:
    assert tokens_of(Config(**settings)) == places


def test_an_address_that_cannot_be_left_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    caplog.set_level(logging.WARNING, "regista")

    _leave_address(Config(state_dir="file"), "http://127.0.0.1:1")
    _leave_address(Config(state_dir="other", api_host="0.0.0.0"), "http://0.0.0.0:1")

    assert "cannot write the address into file" in caplog.text
    assert not Path("other").exists()


@pytest.fixture
def _few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("_few_descriptors")
def test_a_server_takes_as_many_descriptors_as_it_may_have() -> None:
    take_descriptors()

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert now == most > 512
