"""The webhook keys of `clients.toml`: where a client is told, with which secrets, and of what. As strict as the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import WebhookRefused
from .people import ConfigFile, value_of
from .webhooks import EVENTS, SECRET_BYTES, SECRET_PREFIX, ClientWebhook, secret_bytes

_SECRET = f"{SECRET_PREFIX} and the base64 of {SECRET_BYTES.start} to {SECRET_BYTES.stop - 1} bytes, or a list of such"


def read_webhooks(path: str | Path, check: Callable[[str], None]) -> dict[str, ClientWebhook]:
    """Client → its webhook, for those that say something about it. `check` raises WebhookRefused for a bad URL."""
    file = ConfigFile(Path(path))
    found: dict[str, ClientWebhook] = {}
    for name, table in file.tables.items():
        if isinstance(table, dict) and any(key.startswith("webhook_") for key in table):
            found[name] = _webhook(file, name, table, check)
    return found


def _webhook(
    file: ConfigFile, name: str, table: dict[str, Any], check: Callable[[str], None]
) -> ClientWebhook:
    url = value_of(file, name, table, "webhook_url", "a URL", lambda value: isinstance(value, str), None)
    if url is not None:
        try:
            check(url)
        except WebhookRefused as refusal:
            raise file.wrong(name, "webhook_url", f"a URL that may be told ({refusal})", url) from None
    return ClientWebhook(url, _secrets(file, name, table), _events(file, name, table))


def _secrets(file: ConfigFile, name: str, table: dict[str, Any]) -> tuple[str, ...]:
    given = table.get("webhook_secret", ())
    secrets = (given,) if isinstance(given, str) else given
    if not isinstance(secrets, list | tuple) or not all(
        isinstance(one, str) and secret_bytes(one) is not None for one in secrets
    ):
        raise file.wrong(name, "webhook_secret", _SECRET, "…")
    return tuple(secrets)


def _events(file: ConfigFile, name: str, table: dict[str, Any]) -> tuple[str, ...]:
    events = table.get("webhook_events", list(EVENTS))
    if not isinstance(events, list) or not events or any(one not in EVENTS for one in events):
        raise file.wrong(name, "webhook_events", f"a list of {', '.join(EVENTS)}", events)
    return tuple(events)
