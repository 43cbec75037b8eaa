"""Tokens: who may speak to an orchestrator. Configured, or made once for loopback and kept in a file.

The files lie in the state directory (`.regista/`), readable by their owner only, so that the command
line on the same machine finds them and nobody else does.
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
from pathlib import Path

from .errors import ConfigError

#: File names in the state directory.
CLIENT_FILE = "client.token"
WORKER_FILE = "worker.token"


def digest(token: str) -> str:
    """What is kept and looked up instead of a client's token. Any text has one, even what is not UTF-8."""
    # Headers and the environment bring such bytes along as lone surrogates.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_loopback(host: str) -> bool:
    """Only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_token(state_dir: str, name: str) -> str | None:
    """The token that an orchestrator on this machine has left, if there is one."""
    try:
        return Path(state_dir, name).read_text().strip() or None
    except OSError:
        return None


def keep_token(state_dir: str, name: str) -> str:
    """The token of that name: made at the first call, the same ever after."""
    directory = Path(state_dir)
    _make(directory)
    token = secrets.token_urlsafe(24)
    try:
        # O_EXCL: of two processes that start together one makes it, and both use it.
        handle = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = find_token(state_dir, name)
        if found is None:
            raise ConfigError(
                str(directory / name), "a readable token, or no file", "an empty file"
            ) from None
        return found
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
    return token


def _make(directory: Path) -> None:
    """The state directory, for its owner only; and no repository shall take its contents in."""
    if not directory.exists():
        directory.mkdir(parents=True, mode=0o700)
        directory.chmod(0o700)  # whatever the umask thinks
        (directory / ".gitignore").write_text("*\n")


def token_for(setting: str, given: str, host: str, state_dir: str, name: str) -> str:
    """The configured token; on loopback, else, the kept one. Any other address needs a configured one."""
    if given:
        return given
    if is_loopback(host):
        return keep_token(state_dir, name)
    raise ConfigError(setting, f"a token, since {host} can be reached from elsewhere", "")


def equal(given: str, expected: str) -> bool:
    """The tokens are the same; compared in a time that does not depend on where they differ. An empty one equals none."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
