"""Which orchestrators a worker serves."""

from pathlib import Path
from typing import Any

import pytest

from regista.config import WorkerConfig
from regista.errors import ConfigError
from regista.sdk.targets import load_targets


def test_one_url_is_one_target() -> None:
    (target,) = load_targets(WorkerConfig(orchestrator_url="http://one:1/"))

    assert target.url == "http://one:1"


def test_several_are_taken_in_the_order_of_their_priorities() -> None:
    entries: list[dict[str, Any]] = [
        {"url": "http://b", "priority": 2, "weight": 3},
        {"url": "https://a/", "priority": 1, "token": "t"},
    ]

    found = load_targets(WorkerConfig(orchestrators=entries))

    assert [(each.url, each.weight, each.token) for each in found] == [
        ("https://a", 1, "t"),
        ("http://b", 3, ""),
    ]


@pytest.mark.parametrize(
    "entry",
    [{}, {"url": 5}, {"url": "ftp://x"}, {"url": "http://x", "wieght": 2}, {"url": "http://x", "weight": 0},
     {"url": "http://x", "priority": "high"}],
)  # fmt: skip
def test_a_wrong_entry_stops_the_start_and_shows_no_token(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="ORCHESTRATORS_CONFIG") as told:
        load_targets(WorkerConfig(orchestrators=[entry | {"token": "secret-token"}]))

    assert "secret-token" not in str(told.value)


def test_the_token_of_the_entry_wins_then_the_worker_s_own_then_the_common_one(tmp_path: Path) -> None:
    config = WorkerConfig(token="common", individual_token="own", state_dir=str(tmp_path))
    (plain,) = load_targets(config)
    (named,) = load_targets(WorkerConfig(orchestrators=[{"url": "http://x", "token": "entry"}]))

    assert named.token_now(config) == "entry"
    assert plain.token_now(config) == "own"
    assert plain.token_now(WorkerConfig(token="common")) == "common"


def test_on_loopback_the_token_file_is_looked_for_at_every_try(tmp_path: Path) -> None:
    config = WorkerConfig(state_dir=str(tmp_path))
    (target,) = load_targets(config)
    assert target.token_now(config) == ""

    (tmp_path / "worker.token").write_text("made\n")

    assert target.token_now(config) == "made"
    (far,) = load_targets(WorkerConfig(orchestrator_url="http://far.example"))
    assert far.token_now(config) == ""


def test_an_address_that_nobody_named_is_looked_for_at_every_try(tmp_path: Path) -> None:
    config = WorkerConfig(state_dir=str(tmp_path))
    (target,) = load_targets(config)
    assert target.now(config).url == "http://127.0.0.1:8080"

    (tmp_path / "url").write_text("http://127.0.0.1:4711\n")

    assert target.now(config).url == "http://127.0.0.1:4711"
    (given,) = load_targets(WorkerConfig(state_dir=str(tmp_path), orchestrator_url="http://one:1"))
    assert given.now(config).url == "http://one:1"
