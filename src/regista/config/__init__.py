"""Every setting, checked once. This room is the only one that reads the environment.

A setting has a field here (`lease_s`), a name in the environment (`REGISTA_LEASE_SECONDS`) and a paragraph
in docs/reference/settings.md. Names without the prefix are those of the source documents.
"""

from .client import Connection
from .local_address import LocalAddressFile, find_url, url_for
from .orchestrator import Config
from .settings import PREFIX, Setting, settings_of
from .worker import WorkerConfig

#: The settings of each kind of process.
SETTINGS = settings_of(Config)
WORKER_SETTINGS = settings_of(WorkerConfig)
CONNECTION_SETTINGS = settings_of(Connection)

__all__ = [
    "CONNECTION_SETTINGS",
    "PREFIX",
    "SETTINGS",
    "WORKER_SETTINGS",
    "Config",
    "Connection",
    "LocalAddressFile",
    "Setting",
    "WorkerConfig",
    "find_url",
    "url_for",
]
