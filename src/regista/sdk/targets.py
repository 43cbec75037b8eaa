"""Targets: which orchestrators a worker serves, and with which token."""

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..config import WorkerConfig, url_for
from ..errors import ConfigError
from ..tokens import WORKER_FILE, find_token, is_loopback

_KEYS = {"url": str, "token": str, "priority": int, "weight": int}


class OrchestratorTarget(Struct, frozen=True):
    """One orchestrator."""

    url: str
    token: str = ""
    #: Lower comes first (FAILOVER).
    priority: int = 10
    #: Share of the free slots (ROUND_ROBIN).
    weight: int = 1
    #: Nobody named it: it is looked for in the state directory.
    found: bool = False

    def now(self, config: WorkerConfig) -> "OrchestratorTarget":
        """Where it is by now; asked at every try, for the same reason as `token_now`."""
        return replace(self, url=url_for("", config.state_dir)) if self.found else self

    def token_now(self, config: WorkerConfig) -> str:
        """The token to use; on loopback, else, the one that the orchestrator has left in its directory.

        Looked for at every try: a worker may be started before the orchestrator that makes the file.
        """
        given = self.token or config.individual_token or config.token
        if not given and is_loopback(urlsplit(self.url).hostname or ""):
            return find_token(config.state_dir, WORKER_FILE) or ""
        return given


def load_targets(config: WorkerConfig) -> list[OrchestratorTarget]:
    """The orchestrators of the settings, first choice first; ConfigError when an entry is wrong."""
    if not config.orchestrators:
        given = config.orchestrator_url
        return [OrchestratorTarget(url_for(given, config.state_dir), found=not given)]
    targets = [_target(entry) for entry in config.orchestrators]
    return sorted(targets, key=lambda target: target.priority)


def _target(entry: dict[str, Any]) -> OrchestratorTarget:
    known = {key: value for key, value in entry.items() if key in _KEYS}
    right = all(type(value) is _KEYS[key] for key, value in known.items())
    url = entry.get("url")
    if not right or len(known) < len(entry) or not isinstance(url, str) or entry.get("weight", 1) < 1:
        shape = 'entries {"url": str, "token"?: str, "priority"?: int, "weight"?: int from 1}'
        raise ConfigError("ORCHESTRATORS_CONFIG", shape, sorted(entry))  # the values may hold a token
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("ORCHESTRATORS_CONFIG", "an http or https URL", url)
    return OrchestratorTarget(**{**known, "url": url.rstrip("/")})
