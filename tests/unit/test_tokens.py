from pathlib import Path

import pytest

from regista.errors import ConfigError
from regista.tokens import CLIENT_FILE, digest, find_token, is_loopback, keep_token, token_for


def test_a_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / ".regista"
    first = keep_token(str(folder), CLIENT_FILE)

    assert len(first) >= 32
    assert keep_token(str(folder), CLIENT_FILE) == find_token(str(folder), CLIENT_FILE) == first
    assert (folder / CLIENT_FILE).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


def test_an_empty_file_is_not_a_token(tmp_path: Path) -> None:
    (tmp_path / CLIENT_FILE).touch()

    assert find_token(str(tmp_path), CLIENT_FILE) is None
    with pytest.raises(ConfigError, match="an empty file"):
        keep_token(str(tmp_path), CLIENT_FILE)


def test_only_loopback_makes_up_a_token(tmp_path: Path) -> None:
    assert token_for("CLIENT_TOKEN", "given", "0.0.0.0", str(tmp_path), CLIENT_FILE) == "given"
    assert token_for("CLIENT_TOKEN", "", "127.0.0.1", str(tmp_path), CLIENT_FILE)
    with pytest.raises(ConfigError, match=r"CLIENT_TOKEN.*0\.0\.0\.0"):
        token_for("CLIENT_TOKEN", "", "0.0.0.0", str(tmp_path), CLIENT_FILE)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_digest_is_not_the_token() -> None:
    assert digest("secret") == digest("secret")
    assert "secret" not in digest("secret")


def test_bytes_that_are_no_text_have_a_digest_like_any_other() -> None:
    arrived = b"\xe9\xff".decode("utf-8", "surrogateescape")  # as headers and the environment bring them

    assert digest(arrived) != digest("\u00e9\u00ff")
