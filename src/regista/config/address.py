"""Where an orchestrator on this machine is: it leaves its address beside its tokens.

So commands, clients and workers that are started in the same directory find it, whatever its port.
"""

import os
import re
from pathlib import Path

#: Its file in the state directory.
URL_FILE = "url"
#: Where an orchestrator listens by default.
USUAL_URL = "http://127.0.0.1:8080"
#: Nothing else is believed: a token must not leave this machine because of a file that somebody has left.
_LOOPBACK = re.compile(r"http://(127(\.\d{1,3}){3}|localhost|\[::1\]):\d{1,5}")


def url_for(given: str, state_dir: str) -> str:
    """The given address; else the one that a local orchestrator has left; else the usual one."""
    return (given or find_url(state_dir) or USUAL_URL).rstrip("/")


def find_url(state_dir: str) -> str | None:
    """The address that an orchestrator on this machine has left, if there is one."""
    try:
        found = Path(state_dir, URL_FILE).read_text().strip()
    except (OSError, ValueError):
        return None
    return found if _LOOPBACK.fullmatch(found) else None


def leave_url(state_dir: str, url: str) -> None:
    """Say where we are. The last one to say so is the one that is found."""
    directory = Path(state_dir)
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{URL_FILE}.{os.getpid()}"
    fresh.write_text(url + "\n")
    fresh.replace(directory / URL_FILE)  # whoever reads finds all of it, or the one before


def remove_url(state_dir: str, url: str) -> None:
    """We are gone. What another one has said since then is left alone."""
    if find_url(state_dir) == url:
        Path(state_dir, URL_FILE).unlink(missing_ok=True)
