"""The settings of whoever calls an orchestrator: the client library and the command line."""

from typing import ClassVar

from .settings import SWITCH, TOKEN, Setting, Settings, seconds, table, text

#: In the order of the fields below, and of docs/reference/settings.md.
CONNECTION_SETTINGS = table(
    Setting("REGISTA_URL", "url", text("an http or https URL", r"(https?://\S+)?")),
    Setting("CLIENT_TOKEN", "token", TOKEN),
    Setting("REGISTA_DIR", "state_dir", text("a directory", r".+")),
    Setting("REGISTA_TIMEOUT_SECONDS", "timeout_s", seconds(zero=False)),
    Setting("REGISTA_JSON", "json", SWITCH),
    Setting("REGISTA_DEBUG", "debug", SWITCH),
)


class Connection(Settings, frozen=True, kw_only=True):
    """Where the orchestrator is, and who we are to it."""

    TABLE: ClassVar = CONNECTION_SETTINGS

    #: Empty: the one that `regista serve` or `dev` left in `state_dir`; else http://127.0.0.1:8080.
    url: str = ""
    #: Empty: the one that `regista serve` or `dev` left in `state_dir`.
    token: str = ""
    state_dir: str = ".regista"
    timeout_s: float = 30.0
    #: For the command line: answer in JSON; show tracebacks.
    json: bool = False
    debug: bool = False
