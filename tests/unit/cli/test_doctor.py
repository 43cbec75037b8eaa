from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from regista.cli.doctor import address, certificate, clock, orchestrator, settings, storage_file, token_file
from regista.config import Config, Connection
from tests.certificates import Authority


def test_a_token_that_others_can_read_is_bad_and_the_cure_is_named(tmp_path: Path) -> None:
    path = tmp_path / "client.token"
    assert token_file(str(tmp_path), "client.token", "CLIENT_TOKEN", False).good  # not there yet
    path.write_text("secret")

    path.chmod(0o644)
    bad = token_file(str(tmp_path), "client.token", "CLIENT_TOKEN", False)
    assert (bad.good, bad.advice) == (False, f"chmod 600 {path}")

    path.chmod(0o600)
    assert token_file(str(tmp_path), "client.token", "CLIENT_TOKEN", False).good


def test_where_a_file_says_who_may_come_in_no_token_is_made_and_none_is_promised(tmp_path: Path) -> None:
    found = token_file(str(tmp_path), "client.token", "CLIENT_TOKEN", False, "clients.toml")
    assert found.good
    assert "clients.toml says who may come in: set CLIENT_TOKEN" in found.found


def test_an_address_beyond_loopback_needs_credentials() -> None:
    assert address(Config()).good
    assert address(Config(api_host="0.0.0.0")).advice == "set CLIENT_TOKEN and WORKER_TOKEN"
    assert address(Config(api_host="0.0.0.0", client_token="a", worker_token="b")).good


def test_a_file_that_is_not_sqlites_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert storage_file(Config(storage=f"sqlite:{path}")).good  # not there yet
    path.write_text("a letter to my aunt, and nothing else")

    assert not storage_file(Config(storage=f"sqlite:{path}")).good
    assert storage_file(Config(storage="memory")).good


def test_clocks_that_disagree_are_noticed() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert clock(now + timedelta(seconds=1), now).good
    assert not clock(now - timedelta(minutes=1), now).good


def test_the_address_is_that_of_an_orchestrator_to_be() -> None:
    assert address(Config()).found == "would listen on 127.0.0.1:8080"


def test_a_setting_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHER_LIMIT", "many")

    (bad,) = [finding for finding in settings() if not finding.good]
    assert (bad.about, bad.advice) == ("orchestrator settings", "correct or unset WATCHER_LIMIT")


def test_a_certificate_that_is_served_is_looked_at(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    authority.subject("late", "/CN=localhost", "-days", "3")
    authority.subject("old", "/CN=localhost", "-days", "-1")

    def found(**settings: str) -> tuple[bool, str]:
        (finding,) = certificate(Config(**settings))  # type: ignore[arg-type]
        return finding.good, finding.found + finding.advice

    assert certificate(Config()) == []
    good, words = found(**authority.served)
    assert good
    assert "for localhost, 127.0.0.1, good for 824 days" in words
    good, words = found(tls_cert_path=authority.cert("late"), tls_key_path=authority.key("late"))
    assert (good, "on SIGHUP" in words) == (False, True)
    (extensions := tmp_path / "extensions").write_text("extendedKeyUsage = clientAuth\n")
    authority.subject("caller", "/CN=ada", "-days", "90", "-extfile", str(extensions))
    good, words = found(tls_cert_path=authority.cert("caller"), tls_key_path=authority.key("caller"))
    assert (good, "to be shown by a client or worker, not to be served" in words) == (True, True), words
    good, words = found(tls_cert_path=authority.cert("old"), tls_key_path=authority.key("old"))
    assert (good, "certificate has expired" in words) == (False, True)
    good, words = found(tls_cert_path=authority.cert(), tls_key_path=authority.key("old"))
    assert (good, "correct TLS_KEY_PATH" in words) == (False, True)


async def test_an_orchestrator_that_nobody_named_need_not_run(tmp_path: Path) -> None:
    (unnamed,) = await orchestrator(Connection(state_dir=str(tmp_path)))
    (named,) = await orchestrator(Connection(url="http://127.0.0.1:1", state_dir=str(tmp_path)))

    assert (unnamed.good, unnamed.skipped) == (True, True)
    assert (named.good, named.skipped) == (False, False)
