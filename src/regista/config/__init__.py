"""Every setting, checked once. This room is the only one that reads the environment.

A setting has a field here (`lease_s`), a name in the environment (`REGISTA_LEASE_SECONDS`) and a paragraph
in docs/reference/settings.md. Names without the prefix are those of the source documents.
"""

from .address import Address, find_url, url_for
from .connection import CONNECTION_SETTINGS, Connection
from .orchestrator import SETTINGS, Config
from .settings import PREFIX, Setting
from .worker import WORKER_SETTINGS, WorkerConfig

__all__ = [
    "CONNECTION_SETTINGS",
    "PREFIX",
    "SETTINGS",
    "WORKER_SETTINGS",
    "Address",
    "Config",
    "Connection",
    "Setting",
    "WorkerConfig",
    "find_url",
    "url_for",
]
