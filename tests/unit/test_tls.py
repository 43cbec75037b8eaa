"""Certificates from files: what is wrong with them is said before anything listens."""

import logging
import shutil
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from regista.errors import ConfigError
from regista.tls import ServerTls, TlsFiles, client_context, inspect_certificate, server_context
from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "w")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"))


def test_whoever_listens_speaks_nothing_older_than_tls_1_2(authority: Authority) -> None:
    context = server_context(TlsFiles(authority.cert(), authority.key()))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


def test_an_authority_lets_clients_show_certificates_or_makes_them(authority: Authority) -> None:
    files = TlsFiles(authority.cert(), authority.key(), authority.ca)
    assert server_context(files).verify_mode == ssl.CERT_OPTIONAL
    assert server_context(files, require=True).verify_mode == ssl.CERT_REQUIRED


def test_a_key_may_lie_in_the_file_of_its_certificate(authority: Authority, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(authority.cert()).read_text() + Path(authority.key()).read_text())
    server_context(TlsFiles(str(both)))


def wrong(files: TlsFiles, words: str, *, require: bool = False) -> None:
    with pytest.raises(ConfigError) as refusal:
        server_context(files, require=require)
    assert words in str(refusal.value)


def test_each_mistake_names_its_setting_and_its_file(
    authority: Authority, other: Authority, tmp_path: Path
) -> None:
    cert, key = authority.cert(), authority.key()
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("nothing")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")

    wrong(TlsFiles(), "TLS_CERT_PATH: expected the file of a certificate")
    wrong(
        TlsFiles("gone.pem", key),
        "TLS_CERT_PATH: expected a file that can be read, got 'gone.pem: No such file",
    )
    wrong(
        TlsFiles(cert, "gone.key"),
        "TLS_KEY_PATH: expected a file that can be read, got 'gone.key: No such file",
    )
    wrong(
        TlsFiles(cert, key, "gone.pem"),
        "TLS_CA_PATH: expected a file that can be read, got 'gone.pem: No such file",
    )
    wrong(TlsFiles(str(tmp_path), key), "Is a directory")
    wrong(TlsFiles(str(no_pem), key), "TLS_CERT_PATH: expected a certificate in PEM")
    wrong(TlsFiles(cert, str(no_pem)), "TLS_KEY_PATH: expected a key in PEM")
    wrong(TlsFiles(cert), "TLS_KEY_PATH: expected a key in PEM")
    wrong(TlsFiles(cert, key, str(broken)), "TLS_CA_PATH: expected certificates in PEM")
    wrong(TlsFiles(str(broken), key), "TLS_CERT_PATH: expected a certificate and its key")
    wrong(TlsFiles(cert, other.key()), f"TLS_KEY_PATH: expected the key of {cert}")
    wrong(TlsFiles(cert, key), "TLS_CA_PATH: expected the authority", require=True)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    authority: Authority, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", authority.key(), "-out", str(locked), "-aes256", "-passout", "pass:x"]
    subprocess.run(command, check=True, capture_output=True)
    wrong(TlsFiles(authority.cert(), str(locked)), "TLS_KEY_PATH: expected a key without a passphrase")


def test_whoever_calls_believes_the_named_authority_alone(authority: Authority) -> None:
    assert client_context(TlsFiles()) is None
    context = client_context(TlsFiles(ca=authority.ca))
    assert context is not None
    assert ["Regista private authority" in str(one["issuer"]) for one in context.get_ca_certs()] == [True]
    assert context.check_hostname
    with pytest.raises(ConfigError, match="TLS_CERT_PATH: expected the certificate of TLS_KEY_PATH"):
        client_context(TlsFiles(key=authority.key("w")))
    assert client_context(TlsFiles(authority.cert("w"), authority.key("w"))) is not None


def test_a_certificate_is_looked_at(authority: Authority) -> None:
    found = inspect_certificate(TlsFiles(authority.cert(), authority.key()))
    assert (found.trouble, found.names) == ("", ("localhost", "127.0.0.1"))
    assert found.until is not None
    assert 800 < (found.until - datetime.now(UTC)).days <= 825


def test_one_that_is_over_is_served_all_the_same_and_said_so(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.subject("old", "/CN=localhost", "-days", "-1")
    files = TlsFiles(authority.cert("old"), authority.key("old"))
    assert inspect_certificate(files).trouble == "certificate has expired"
    with caplog.at_level(logging.WARNING):
        ServerTls(files)
    assert "certificate has expired" in caplog.text


def test_a_reload_with_a_mistake_changes_nothing(
    authority: Authority, other: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(authority.cert(), cert)
    shutil.copy(authority.key(), key)
    served = ServerTls(TlsFiles(str(cert), str(key)))
    shutil.copy(other.key(), key)
    assert served.reload() is False
    assert "the certificates stay as they were: TLS_KEY_PATH" in caplog.text
    shutil.copy(other.cert(), cert)
    assert served.reload() is True
