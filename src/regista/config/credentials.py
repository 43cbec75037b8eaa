"""Tokens of clients and workers: from the program, from the files and from the settings."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from ..model import ClientConfig
from ..tokens import CLIENT_FILE, WORKER_FILE, digest, token_for
from .client_webhooks import read_webhooks
from .orchestrator import Config
from .people import WorkerTokens, add_clients, read_clients, read_workers, warn_of_nobody
from .webhooks import ClientWebhook


class ConfiguredTokens(Struct, frozen=True):
    """All credentials that this orchestrator accepts."""

    #: SHA-256 of a client's token → the client.
    clients: Mapping[str, ClientConfig]
    #: The token of every worker without one of its own; empty: none.
    worker_token: str
    workers: WorkerTokens = WorkerTokens({})
    #: Client name → its webhook, from `clients.toml`.
    webhooks: Mapping[str, ClientWebhook] = {}


def load_tokens(
    config: Config,
    host: str,
    program_clients: Mapping[str, ClientConfig],
    program_tokens: Mapping[str, str],
    check_url: Callable[[str], None],
) -> ConfiguredTokens:
    """Read the credentials. Makes token files where none are configured and `host` is local; else raises ConfigError.

    `program_tokens` maps a token to the name of its client; `check_url` raises for a webhook URL that is refused.
    """
    webhooks: dict[str, ClientWebhook] = {}
    clients = {
        digest(token): program_clients.get(name) or ClientConfig(name=name)
        for token, name in program_tokens.items()
    }
    if config.clients_config_path:
        add_clients(clients, read_clients(config.clients_config_path), config.clients_config_path)
        webhooks = read_webhooks(config.clients_config_path, check_url)
    if config.client_token or not (clients or config.clients_config_path):
        # Without configured clients there is one, and it may manage all jobs.
        token = token_for("CLIENT_TOKEN", config.client_token, host, config.state_dir, CLIENT_FILE)
        add_clients(clients, {digest(token): ClientConfig(name="default", operator=True)}, "CLIENT_TOKEN")
    warn_of_nobody(config, clients)
    workers = WorkerTokens({})
    if config.workers_config_path:
        workers = read_workers(config.workers_config_path)
    worker_token = config.worker_token
    if not worker_token and not config.workers_config_path and config.worker_auth_mode != "mtls-only":
        worker_token = token_for("WORKER_TOKEN", "", host, config.state_dir, WORKER_FILE)
    return ConfiguredTokens(clients, worker_token, workers, webhooks)
