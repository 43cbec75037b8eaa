"""Whom the doors know."""

import logging

import pytest

from regista.api.authenticator import Authenticator
from regista.config.credentials import ConfiguredTokens
from regista.config.people import WorkerTokens
from regista.errors import ConfigError
from regista.model import ClientConfig
from regista.tokens import digest

ADA = ClientConfig(name="ada")


def doors(**guests: object) -> Authenticator:
    every = {"clients": {digest("t-ada"): ADA}, "worker_token": "all"} | guests
    return Authenticator(lambda: ConfiguredTokens(**every))  # type: ignore[arg-type]


def test_a_client_is_known_by_its_token_alone() -> None:
    known = doors()
    assert known.client("t-ada") == ADA
    for stranger in ("", "ada", digest("t-ada"), "t-ada ", "t-ad\udcff"):
        assert known.client(stranger) is None


def test_a_worker_with_a_token_of_its_own_comes_in_with_no_other() -> None:
    known = doors(workers=WorkerTokens({"w": "own"}, (("edge-*", "edge"),)))
    assert known.is_of("own", "w")
    assert not known.is_of("all", "w")
    assert known.is_of("edge", "edge-1")
    assert not known.is_of("own", "edge-1")
    assert known.is_of("all", "anybody")
    assert not known.is_of("own", "anybody")
    assert [known.knows(token) for token in ("own", "edge", "all", "none", "")] == [True] * 3 + [False] * 2


def test_without_a_token_for_all_only_those_with_one_of_their_own_come_in() -> None:
    known = doors(worker_token="", workers=WorkerTokens({"w": "own"}))
    assert known.is_of("own", "w")
    assert not known.is_of("", "anybody")
    assert not known.knows("")


def test_a_mistake_in_a_file_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[ConfiguredTokens | ConfigError] = [
        ConfiguredTokens({}, "old"),
        ConfigError("clients.toml, line 3", "a token", "nothing"),
        ConfiguredTokens({}, "new"),
    ]

    def read() -> ConfiguredTokens:
        answer = answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    known = Authenticator(read)
    with caplog.at_level(logging.ERROR):
        assert known.reload() is False
    assert "clients.toml, line 3: expected a token" in caplog.text
    assert known.mistaken == "clients.toml"
    assert known.is_of("old", "w")
    assert known.reload() is True
    assert known.is_of("new", "w")
    assert known.mistaken == ""
