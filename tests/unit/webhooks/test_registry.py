"""WebhookRegistry: a job's own URL, else its client's; its client's secrets, else a derive_secret one."""

import pytest

from regista.config.webhooks import ClientWebhook
from regista.errors import WebhookRefused
from regista.webhooks.addresses import AddressPolicy
from regista.webhooks.registry import WebhookRegistry
from regista.webhooks.signature import derive_secret


async def root(name: str) -> bytes:
    return name.encode() * 4


def book(**clients: ClientWebhook) -> WebhookRegistry:
    made = WebhookRegistry(AddressPolicy(), root)
    made.replace_clients(clients)
    return made


def test_a_job_tells_where_it_says_else_where_its_client_listens_else_nowhere() -> None:
    known = book(acme=ClientWebhook("https://acme.example.com/hook"))
    assert known.url_for("acme", "https://other.example.com") == "https://other.example.com"
    assert known.url_for("acme", None) == "https://acme.example.com/hook"
    assert known.url_for("bob", None) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com",
        "https://",
        "https:///path",
        "//example.com",
        "https://exa mple.com/",
        "https://example.com/a\r\nX: y",
        "https://example.com:99999/",
        "https://[::1/",
        "https://example.com/" + "a" * 2000,
        "http://127.0.0.1/",
        "http://[::1]:8080/",
        "http://localhost/",
        "http://user:password@10.0.0.1/",
    ],
)
def test_a_url_that_could_never_be_told_is_refused_when_it_is_named(url: str) -> None:
    with pytest.raises(WebhookRefused):
        book().url_for("acme", url)


async def test_a_client_without_a_secret_gets_one_that_is_its_own() -> None:
    known = book(acme=ClientWebhook(secrets=("whsec_a", "whsec_b")))
    assert await known.secrets_of("acme") == ("whsec_a", "whsec_b")
    assert await known.secrets_of("bob") == (derive_secret(b"webhook" * 4, "bob"),)
    assert (known.has_own("acme"), known.has_own("bob")) == (True, False)


def test_a_client_that_said_nothing_hears_of_everything() -> None:
    known = book(acme=ClientWebhook(events=("failed",)))
    assert known.wants("bob", "finished")
    assert known.wants("acme", "failed")
    assert not known.wants("acme", "finished")
