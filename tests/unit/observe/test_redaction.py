"""What a log never shows."""

import io
import json
import logging
import time
from pathlib import Path

import pytest

from regista.config import Config, WorkerConfig
from regista.observe.logging import JsonLines, PrettyLines, zone
from regista.observe.redaction import Redaction, secrets_of

SECRET = "s3cr3t-of-mine"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization={SECRET}",
        f"sent Bearer {SECRET} and failed",
        f"Basic {SECRET}",
        f"X-Client-Token: {SECRET}, X-Other: 1",
        f"x-worker-token={SECRET}",
        f"X-Webhook-Signature: {SECRET}",
        f"GET /_public/webhooks/approval/j1?token={SECRET}&x=1 failed",
        f"access_token={SECRET}",
        f"REDIS_PASSWORD={SECRET}",
        f"{{'token': '{SECRET}'}}",
        f'{{"client_secret": "{SECRET}", "a": 1}}',
        f"[(b'X-Client-Token', b'{SECRET}')]",
        f"cannot reach redis://user:{SECRET}@host:6379/0",
        f"cannot reach postgresql://u:{SECRET}@host/db",
    ],
)
def test_a_secret_is_hidden_by_where_it_stands(text: str) -> None:
    hidden = Redaction().hide(text)
    assert SECRET not in hidden
    assert "***" in hidden


@pytest.mark.parametrize(
    "text",
    [
        "WORKER_TOKEN: expected a token, got nothing",
        "this client token is not known here",
        "token: expected a text that is not empty",
        "serving at http://127.0.0.1:8080",
        "job 0197 begins",
    ],
)
def test_words_about_secrets_stay(text: str) -> None:
    assert Redaction().hide(text) == text


def test_a_known_secret_is_hidden_anywhere_and_the_longer_one_first() -> None:
    redaction = Redaction([SECRET, SECRET + "-longer", "short"])
    assert redaction.hide(f"odd[{SECRET}-longer]odd, short") == "odd[***]odd, short"
    redaction.learn(["another-one"])
    assert redaction.hide("another-one") == "***"


@pytest.mark.parametrize("form", [JsonLines(zone("UTC")), PrettyLines(zone("UTC"), False)])
def test_messages_fields_and_traces_are_hidden_in_both_forms(form: JsonLines | PrettyLines) -> None:
    redaction = Redaction([SECRET])
    form.hide = redaction.hide
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(form)
    handler.addFilter(redaction)
    log = logging.Logger("test")
    log.addHandler(handler)

    try:
        raise ValueError(f"no such thing as {SECRET}")
    except ValueError:
        log.exception(
            "it said %s and %d%%",
            SECRET,
            5,
            extra={
                "params": {"card": "4111-1111"},
                "worker_token": "other-secret",
                "url": f"http://x/?token={SECRET}",
                "headers": {"X-Client-Token": "third-secret"},
                "job_id": "j1",
                "count": 7,
            },
        )
    log.warning("wrong %s %s", "number")  # a mistake in a line is no reason to lose it

    said = out.getvalue()
    for secret in (SECRET, "4111-1111", "other-secret", "third-secret"):
        assert secret not in said
    assert "it said *** and 5%" in said
    assert "j1" in said
    assert "wrong %s %s" in said
    if isinstance(form, JsonLines):
        line = json.loads(said.splitlines()[0])
        assert (line["count"], line["params"]) == (7, "***")
        assert "ValueError: no such thing as ***" in line["trace"]


def test_secrets_of_a_process_are_its_settings_its_files_and_its_own_tokens(tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text('[a]\ntoken = "client-token-a"\n[b]\ntoken_sha256 = "x"\n')
    (tmp_path / "workers.toml").write_text('["w"]\ntoken = "worker-token-w"\n')
    (tmp_path / "client.token").write_text("made-for-loopback\n")
    config = Config(
        state_dir=str(tmp_path),
        clients_config_path=str(tmp_path / "clients.toml"),
        workers_config_path=str(tmp_path / "workers.toml"),
        worker_token="everybodys-token",
        approval_secret="x" * 16,
        redis_password="of-redis",
    )
    assert secrets_of(config) >= {
        "client-token-a", "worker-token-w", "made-for-loopback", "everybodys-token", "x" * 16, "of-redis",
    }  # fmt: skip
    assert "everybodys-token" in secrets_of(WorkerConfig(token="everybodys-token"), str(tmp_path))
    (tmp_path / "clients.toml").write_text("[a")
    assert "worker-token-w" in secrets_of(config)


@pytest.mark.parametrize(
    "piece", ["a-", "x-", "x-a", "-token", "'token': '", "://a", "authorization: ", "bearer "]
)
def test_a_long_text_of_a_stranger_does_not_keep_it_busy(piece: str) -> None:
    began = time.process_time()
    Redaction([SECRET]).hide(piece * (20_000 // len(piece)))
    assert time.process_time() - began < 2
