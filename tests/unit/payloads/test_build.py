"""Which payload store the settings mean."""

import subprocess
import sys
from pathlib import Path

import pytest

from regista import Config, WorkerConfig
from regista.config.payloads import payloads_url
from regista.errors import ConfigError, PayloadUnavailable
from regista.payloads.build import build_payloads
from regista.payloads.directory import DirectoryPayloads
from regista.payloads.memory import MemoryPayloads
from regista.payloads.s3 import S3Service

S3 = {"S3_ENDPOINT_URL": "http://127.0.0.1:9", "S3_ACCESS_KEY": "key", "S3_SECRET_KEY": "a-secret"}


def test_without_a_word_there_is_none() -> None:
    assert build_payloads(Config.from_env({})) is None
    assert build_payloads(WorkerConfig.from_env({})) is None
    assert build_payloads(Config.from_env(S3 | {"REGISTA_PAYLOADS": "off"})) is None


def test_the_settings_of_s3_are_enough() -> None:
    config = Config.from_env(S3)

    store = build_payloads(config)

    assert payloads_url(config) == "s3://regista-payloads"
    assert isinstance(store, S3Service)
    assert store.uri("jobs/j1/a") == "s3://regista-payloads/jobs/j1/a"


def test_the_word_wins_and_may_have_a_prefix(tmp_path: Path) -> None:
    named = {**S3, "REGISTA_PAYLOADS": "s3://bucket/some/where/"}
    store = build_payloads(WorkerConfig.from_env(named))

    assert store is not None
    assert store.uri("jobs/j1/a") == "s3://bucket/some/where/jobs/j1/a"
    assert isinstance(build_payloads(Config(payloads="memory")), MemoryPayloads)
    for word in (f"file:{tmp_path / 'a b'}", f"file://{tmp_path / 'a b'}"):
        local = build_payloads(Config(payloads=word))
        assert isinstance(local, DirectoryPayloads)
        assert local.path_of(local.uri("jobs/j1/a")) == "jobs/j1/a"


@pytest.mark.parametrize("word", ["ftp://x", "s3:bucket", "file:", "s3://"])
def test_another_word_stops_the_start(word: str) -> None:
    with pytest.raises(ConfigError, match="REGISTA_PAYLOADS: expected off, memory, file:PATH, s3://BUCKET"):
        Config.from_env({"REGISTA_PAYLOADS": word})


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PayloadUnavailable, match="cannot use the directory"):
        build_payloads(Config(payloads=f"file:{tmp_path / 'file' / 'below'}"))


def test_only_the_last_directory_is_made_and_a_mistyped_path_is_told(tmp_path: Path) -> None:
    words = r"REGISTA_PAYLOADS: expected .* that exists \(`mkdir -p .*/typo/deep` makes it\), got 'file:/"
    with pytest.raises(ConfigError, match=words):
        build_payloads(Config(payloads=f"file:{tmp_path}/typo/deep"))

    assert list(tmp_path.iterdir()) == []


def test_a_relative_directory_is_warned_of_with_what_it_means_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)

    store = build_payloads(Config(payloads="file:here"))

    assert store is not None
    assert store.uri("a") == (tmp_path / "here" / "a").as_uri()
    assert f"file:here is {tmp_path / 'here'} for this process" in caplog.text


def test_a_secret_is_never_shown() -> None:
    assert "a-secret" not in repr(Config.from_env(S3))


def test_without_the_extra_a_directory_works_and_s3_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from regista import Config\n"
        "from regista.payloads.build import build_payloads\n"
        "assert build_payloads(Config(payloads='memory'))\n"
        f"assert build_payloads(Config(payloads='file:{tmp_path / 'x'}'))\n"
        "build_payloads(Config(payloads='s3://bucket'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "expected the s3 extra (pip install 'regista[s3]')" in done.stderr
