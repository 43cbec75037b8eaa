"""What `regista doctor` finds out about servers and files of people: asked as a start would ask, and nothing changed."""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..backends import build_storage, history_version
from ..clock import SystemClock
from ..config import Config
from ..config.payloads import payloads_url
from ..config.people import read_clients, read_workers
from ..config.schedules_file import read_schedules
from ..errors import ConfigError, RegistaError
from ..payloads.build import build_payloads
from .check import Check

#: How long a server may take to answer.
_PATIENCE_S = 5.0


async def redis(config: Config) -> Check:
    """The server answers, is new enough, keeps what it is told, and lets us in."""
    where = _shown(config.storage)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            storage = build_storage(config.storage, SystemClock())
            with _heard() as warnings:
                await storage.start()
            await storage.stop()
    except (RegistaError, TimeoutError) as error:
        said = str(error) or "no answer in time"
        return Check(
            "storage", False, f"{where}: {said}", "see docs/howto/redis.md; or name another with --storage"
        )
    if warnings:
        return Check("storage", False, f"{where}: {warnings[0]}", "set it in the server's configuration file")
    return Check("storage", True, f"{where} reachable")


async def postgres(config: Config) -> list[Check]:
    """The history answers and lets us in. Nothing to say where it is a file, or there is none."""
    uri = config.history_database_uri
    if not uri.startswith("postgres"):
        return []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            version = await history_version(uri)
    except (RegistaError, TimeoutError) as error:
        said = str(error) or f"{_shown(uri)}: no answer in time"
        return [Check("history", False, said, "start it, or correct HISTORY_DATABASE_URI")]
    return [Check("history", True, f"{_shown(uri)} reachable, PostgreSQL {version}")]


def people(config: Config) -> list[Check]:
    """The files that say who may come in can be read, where they are named."""
    found = []
    if config.clients_config_path:
        found.append(
            _file("clients", config.clients_config_path, lambda path: f"{len(read_clients(path))} clients")
        )
    if config.workers_config_path:
        found.append(_file("workers", config.workers_config_path, _workers))
    return found


def schedules(config: Config) -> list[Check]:
    """The file of schedules can be read, where one is named."""
    path = config.schedules_config_path
    if not path:
        return []
    return [_file("schedules", path, lambda path: f"{len(read_schedules(path, config.tz))} schedules")]


async def payloads(config: Config) -> list[Check]:
    """Files and large values can be kept where the settings say. Nothing to say where they say nothing."""
    url = payloads_url(config)
    if not url:
        return []
    if url.startswith("file:"):
        return [_directory(Path(url.removeprefix("file:").removeprefix("//")))]
    try:
        async with asyncio.timeout(_PATIENCE_S):
            store = build_payloads(config)
            assert store is not None
            await store.start()
    except (RegistaError, TimeoutError) as error:
        said = f"{url}: {str(error) or 'no answer in time'}"
        return [Check("payloads", False, said, "correct REGISTA_PAYLOADS and the settings of S3")]
    return [Check("payloads", True, f"{url} reachable")]


def _directory(path: Path) -> Check:
    here = path if path.exists() else path.parent
    if not here.is_dir():
        return Check(
            "payloads", False, f"{here} is no directory", f"mkdir -p {path}, or correct REGISTA_PAYLOADS"
        )
    if not os.access(here, os.W_OK | os.X_OK):
        return Check("payloads", False, f"{here} cannot be written", "give this user the right to write it")
    if not path.is_absolute():
        advice = f"REGISTA_PAYLOADS=file:{path.absolute()}, for the orchestrator and every worker"
        return Check("payloads", False, f"{path} is another directory for whoever starts elsewhere", advice)
    return Check("payloads", True, f"{path}" if path.exists() else f"{path}; the first start makes it")


def _workers(path: str) -> str:
    tokens = read_workers(path)
    return f"{len(tokens.by_id)} workers and {len(tokens.by_pattern)} patterns"


def _file(about: str, path: str, read: Callable[[str], str]) -> Check:
    try:
        return Check(about, True, f"{path}: {read(path)}")
    except ConfigError as error:
        return Check(about, False, str(error), f"correct {path}")


def _shown(uri: str) -> str:
    return re.sub(r"://[^@/]*@", "://***@", uri)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What a start would warn of."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    ear: Any = Ear(logging.WARNING)
    log = logging.getLogger("regista.storage")
    log.addHandler(ear)
    log.propagate = False
    try:
        yield said
    finally:
        log.propagate = True
        log.removeHandler(ear)
