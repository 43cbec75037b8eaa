"""The webhook keys of clients.toml: read strictly, and kept from handlers."""

from pathlib import Path

import pytest

from regista.config.client_webhooks import read_webhooks
from regista.config.people import read_clients
from regista.config.webhooks import EVENTS, ClientWebhook
from regista.errors import ConfigError, WebhookRefused

SECRET = "whsec_" + "A" * 32
NEWER = "whsec_" + "B" * 44


def check(url: str) -> None:
    if "10.0.0.1" in url:
        raise WebhookRefused("10.0.0.1 is not a public address")


def read(path: Path, text: str) -> dict[str, ClientWebhook]:
    file = path / "clients.toml"
    file.write_text(text)
    return read_webhooks(file, check)


def test_a_client_says_where_with_what_and_of_what(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f'''
[acme]
token = "t-acme"
webhook_url = "https://acme.example.com/hook"
webhook_secret = "{SECRET}"
webhook_events = ["failed", "quarantined"]
region = "eu"

[bob]
token = "t-bob"
webhook_secret = ["{NEWER}", "{SECRET}"]

[carol]
token = "t-carol"
''',
    )
    assert found == {
        "acme": ClientWebhook("https://acme.example.com/hook", (SECRET,), ("failed", "quarantined")),
        "bob": ClientWebhook(None, (NEWER, SECRET), EVENTS),
    }


def test_handlers_see_none_of_it(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(
        f'[acme]\ntoken = "t"\nwebhook_url = "https://a"\nwebhook_secret = "{SECRET}"\nwebhook_events = ["failed"]\nx = 1\n'
    )
    (client,) = read_clients(file).values()
    assert client.params == {"x": 1}
    assert SECRET not in repr(client)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("webhook_url = 7", "a URL"),
        ('webhook_url = "https://10.0.0.1/"', "not a public address"),
        ('webhook_secret = "hunter2"', "whsec_"),
        ('webhook_secret = "whsec_c2hvcnQ="', "24 to 64 bytes"),
        ('webhook_secret = "whsec_!"', "whsec_"),
        ("webhook_secret = 7", "whsec_"),
        (f'webhook_secret = ["{SECRET}", 7]', "whsec_"),
        ('webhook_events = "failed"', "a list of finished"),
        ("webhook_events = []", "a list of finished"),
        ('webhook_events = ["ended"]', "a list of finished"),
    ],
)
def test_a_mistake_names_its_line_and_shows_no_secret(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"line 3: acme\.webhook_") as caught:
        read(tmp_path, f'[acme]\ntoken = "t"\n{line}\n')
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)
