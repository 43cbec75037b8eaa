"""`regista doctor`: checks this installation, and says what to do about what is wrong."""

import argparse
import asyncio
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from .. import __version__
from ..client import Client
from ..config import Config, Connection, WorkerConfig, find_url
from ..config.people import missing_tokens
from ..errors import ApiError, ConfigError, RegistaError
from ..tls import TlsFiles, inspect_certificate, server_context
from ..tokens import CLIENT_FILE, WORKER_FILE, is_loopback
from . import doctor_servers, exit_codes
from .check import Check
from .output import Output, output_for

#: A clock that is further off than this makes leases and deadlines look wrong to people.
_CLOCK_OFF_S = 5.0
#: A certificate with fewer days left should have been renewed.
_RENEW_DAYS = 14
#: How long an orchestrator may take to answer.
_PATIENCE_S = 3.0


async def examine(args: argparse.Namespace) -> int:
    """Look at everything; 0 when all of it is good."""
    checks = [python(), *settings(), *(await _beyond(args)), graphviz()]
    _tell(output_for(args), checks)
    return exit_codes.OK if all(each.good for each in checks) else exit_codes.FAILED


async def _beyond(args: argparse.Namespace) -> list[Check]:
    """What needs settings that can be read."""
    try:
        connection = Connection.from_env(url=args.url, state_dir=args.dir, timeout_s=_PATIENCE_S)
        config = Config.from_env(state_dir=args.dir, storage=args.storage)
        if not config.redis_host and args.storage is None:
            file = f"sqlite:{Path(connection.state_dir, 'jobs.db')}"
            config = Config.from_env(defaults={"storage": file}, state_dir=args.dir)
    except ConfigError as error:
        # Said already, unless it is the flag's.
        return [] if args.storage is None else [Check("storage", False, str(error), "correct --storage")]
    return [
        token_file(
            connection.state_dir,
            CLIENT_FILE,
            "CLIENT_TOKEN",
            bool(connection.token),
            config.clients_config_path,
        ),
        token_file(
            connection.state_dir,
            WORKER_FILE,
            "WORKER_TOKEN",
            bool(config.worker_token),
            config.workers_config_path,
        ),
        address(config),
        *certificate(config),
        *doctor_servers.people(config),
        *doctor_servers.schedules(config),
        *await doctor_servers.payloads(config),
        await storage(config),
        *await doctor_servers.postgres(config),
        *await orchestrator(connection),
    ]


def python() -> Check:
    """Which Python, and which Regista."""
    version = platform.python_version()
    return Check(
        "python",
        sys.version_info >= (3, 11),
        f"Python {version}, regista {__version__}",
        "install Python 3.11 or newer",
    )


def settings() -> list[Check]:
    """What the environment says to each kind of process."""
    kinds: list[tuple[str, Callable[[], object]]] = [
        ("orchestrator settings", Config.from_env),
        ("worker settings", WorkerConfig.from_env),
        ("client settings", Connection.from_env),
    ]
    return [_read(about, read) for about, read in kinds]


def _read(about: str, read: Callable[[], object]) -> Check:
    try:
        read()
    except ConfigError as error:
        return Check(about, False, str(error), f"correct or unset {error.name}")
    return Check(about, True, "valid")


def token_file(state_dir: str, name: str, setting: str, given: bool, people: str = "") -> Check:
    """A token is configured, or lies where it should, readable by its owner only. `people`: the file that names them instead."""
    path = Path(state_dir, name)
    if given:
        return Check(name, True, f"{setting} is set")
    if not path.exists() and people:
        told = f"none is made, since {people} says who may come in: set {setting} to a token of one of them"
        return Check(name, True, told)
    if not path.exists():
        return Check(
            name, True, f"{path} is not there yet; the first `regista serve` or `dev` on loopback makes it"
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Check(name, False, f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return Check(name, True, f"{path}, mode {mode:o}")


def address(config: Config) -> Check:
    """Beyond loopback, credentials must be configured."""
    missing = missing_tokens(config)
    if is_loopback(config.api_host) or not missing:
        return Check("address", True, f"would listen on {config.api_host}:{config.api_port}")
    return Check(
        "address",
        False,
        f"{config.api_host} can be reached from elsewhere, and credentials are missing",
        f"set {' and '.join(missing)}",
    )


def certificate(config: Config) -> list[Check]:
    """The certificate can be used, and for a while yet. Nothing to say where none is.

    The same settings name what an orchestrator serves and what a client or worker shows; which of them this
    environment is for, nobody can see.
    """
    if not config.tls_cert_path or config.tls_enabled is False:
        return []
    files = TlsFiles(config.tls_cert_path, config.tls_key_path, config.tls_ca_path)
    try:
        server_context(files, require=config.tls_require_client_cert)
        serves = inspect_certificate(files)
        calls = serves if not serves.trouble else inspect_certificate(files, calls=True)
    except ConfigError as error:
        return [Check("certificate", False, str(error), f"correct {error.name}")]
    renew = f"put a new one into {files.cert}; an orchestrator that serves it reads it on SIGHUP"
    found = serves if calls.trouble else calls
    if found.trouble or found.until is None:
        return [Check("certificate", False, f"{files.cert}: {found.trouble}", renew)]
    days = (found.until - datetime.now(UTC)).days
    told = f"{files.cert}, {_meant_for(() if serves.trouble else found.names)}, good for {days} days"
    return [Check("certificate", days >= _RENEW_DAYS, told, renew)]


def _meant_for(names: Sequence[str]) -> str:
    if names:
        return f"for {', '.join(names)}"
    return "without a name of a host: to be shown by a client or worker, not to be served"


async def storage(config: Config) -> Check:
    """Jobs can be kept where the settings say."""
    if config.storage.startswith(("redis:", "rediss:", "unix:")):
        return await doctor_servers.redis(config)
    return storage_file(config)


def storage_file(config: Config) -> Check:
    """The file of jobs can be written, or can be made."""
    kind, _, name = config.storage.partition(":")
    if kind != "sqlite":
        return Check("storage", True, f"{kind}: jobs are gone when the process ends")
    path = Path(name)
    if not path.exists():
        return Check("storage", True, f"{path} is not there yet; the first start here makes it")
    try:
        with path.open("r+b") as file:
            head = file.read(16)
    except OSError as error:
        return Check("storage", False, f"{path}: {error.strerror}", "give this user the right to write it")
    if head and not head.startswith(b"SQLite format 3"):
        return Check("storage", False, f"{path} is not a file of SQLite", "name another with --storage")
    return Check("storage", True, f"{path}, {path.stat().st_size:,} bytes")


async def orchestrator(connection: Connection) -> list[Check]:
    """An orchestrator answers, accepts the token, and agrees about the time. Where none is named, none need run."""
    named = bool(connection.url or find_url(connection.state_dir))
    try:
        client = Client(connection=connection, first_contact_s=0.0)
    except ConfigError as error:  # certificates that cannot be read
        return [Check("client certificates", False, str(error), f"correct or unset {error.name}")]
    async with client:
        try:
            answer = await asyncio.wait_for(client.status(), _PATIENCE_S)
        except (RegistaError, TimeoutError) as error:
            if not named:
                return [Check("orchestrator", True, "not running", skipped=True)]
            said = str(error) or "no answer in time"
            return [
                Check("orchestrator", False, said, "start one (`regista dev APP`), or correct REGISTA_URL")
            ]
        theirs = str(answer.get("version", "unknown"))
        checks = [
            Check(
                "orchestrator",
                theirs in {__version__, "unknown"},
                f"{client.url} reachable, version {theirs}",
                f"this is version {__version__}: use the same on both sides",
            )
        ]
        checks.append(await _accepted(client))
        if (moment := client.server_time) is not None:
            checks.append(clock(parsedate_to_datetime(moment)))
        return checks


async def _accepted(client: Client) -> Check:
    try:
        await client.blueprints()
    except ApiError as error:
        advice = (
            "set CLIENT_TOKEN (to the token of a client, where the orchestrator has a clients.toml), "
            "or REGISTA_DIR to where the orchestrator keeps its tokens"
        )
        return Check("client token", False, error.detail, advice)
    except RegistaError as error:
        return Check("client token", False, str(error), "look at the orchestrator's log")
    return Check("client token", True, "the orchestrator knows it")


def clock(theirs: datetime, now: datetime | None = None) -> Check:
    """Our clock and the orchestrator's agree."""
    off = abs((theirs - (now or datetime.now(UTC))).total_seconds())
    good = off <= _CLOCK_OFF_S
    found = "agrees with the orchestrator's" if good else f"is {off:.0f} s away from the orchestrator's"
    return Check("clock", good, found, "set both by NTP")


def graphviz() -> Check:
    """Pictures of blueprints can be drawn. Their text can be, anyway."""
    path = shutil.which("dot")
    return Check("graphviz", True, path or "not installed (graphs as DOT only)")


def _tell(output: Output, checks: list[Check]) -> None:
    if output.json:
        output.json_document(
            {"good": all(each.good for each in checks), "findings": [asdict(f) for f in checks]}
        )
        return
    for check in checks:
        output.check_line(None if check.skipped else check.good, f"{check.about:<22} {check.found}")
        if not check.good and check.advice:
            output.line(f"     {'':<22} → {check.advice}")
