"""`regista serve`: the orchestrator of an app, until it is told to stop."""

import argparse
import gc
import logging
import resource
import sys
from contextlib import suppress
from pathlib import Path

from ..config import Config, LocalAddressFile
from ..config.people import missing_tokens
from ..config.telemetry import as_json
from ..errors import ConfigError
from ..observe.log_context import IDS
from ..observe.logging import set_up
from ..observe.redaction import Redaction, secrets_of
from ..orchestrator import OrchestratorEngine
from ..server import HttpServer, serve_until_signal
from ..tokens import CLIENT_FILE, WORKER_FILE, is_loopback
from . import exit_codes
from .app import App, load_app
from .errors import UsageError, name_errors_by_flag
from .output import Output, output_for

log = logging.getLogger("regista")

#: Seconds after which a thread that waits for the GIL gets it. The thread that writes to the disk needs it for moments, and
#: with Python's 5 ms it would wait longer for each than for the disk (docs/decisions/0010).
SWITCH_INTERVAL_S = 0.0002


def serve(args: argparse.Namespace) -> int:
    """Serve the blueprints of the app. Its workers are left to `regista worker`."""
    config = config_for(args)
    if args.app is None and not config.blueprints_dir:
        raise UsageError("expected an APP, or BLUEPRINTS_DIR in the environment; got neither")
    app = App("", (), ())
    if args.app is not None:
        app = load_app(args.app)
        app.need_blueprints()
    take_descriptors()
    return perform(args, config, app, with_workers=False)


def take_descriptors() -> None:
    """As many files and connections at once as this process may have. Most begin with 1024: not many workers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names a limit that it does not grant; we keep what we have
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def config_for(args: argparse.Namespace) -> Config:
    """The settings of this process: flags, then the environment, then the command line's own defaults."""
    storage = args.storage
    flags = {"api_host": "host", "api_port": "port", "storage": "storage", "state_dir": "dir"}
    with name_errors_by_flag(args, **flags, log_level="log_level"):
        named = Config.from_env(state_dir=args.dir)
        file = f"sqlite:{Path(named.state_dir, 'jobs.db')}"
        config = Config.from_env(
            defaults={} if named.redis_host else {"storage": file},
            storage=storage,
            state_dir=args.dir,
            api_host=args.host,
            api_port=args.port,
            log_level=args.log_level and args.log_level.upper(),
        )
        _refuse_missing_directory(config, "REGISTA_STORAGE" if storage is None else "storage")
    _refuse_missing_tokens(config)
    return config


def _refuse_missing_directory(config: Config, setting: str) -> None:
    """A mistyped path would become an empty store somewhere. Only our own directory is made."""
    path = _store_of(config)
    if path is None or path.parent.is_dir() or path.parent == Path(config.state_dir):
        return
    raise ConfigError(
        setting, f"a file in a directory that exists (`mkdir -p {path.parent}` makes it)", config.storage
    )


def _store_of(config: Config) -> Path | None:
    kind, _, path = config.storage.partition(":")
    return Path(path) if kind == "sqlite" else None


def _refuse_missing_tokens(config: Config) -> None:
    """Both are named at once: who lacks one mostly lacks the other."""
    missing = missing_tokens(config)
    if missing and not is_loopback(config.api_host):
        raise UsageError(
            f"{' and '.join(missing)}: expected a token, since {config.api_host} can be reached from elsewhere; "
            f"set {'both' if len(missing) > 1 else 'it'}, name a file of tokens (CLIENTS_CONFIG_PATH, "
            "WORKERS_CONFIG_PATH), or listen on 127.0.0.1"
        )


def perform(args: argparse.Namespace, config: Config, app: App, *, with_workers: bool) -> int:
    """Build the orchestrator, serve until a signal, and return when everything is put away."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    output = output_for(args)
    redaction = set_up(
        config.log_level,
        config.tz,
        as_json=True if output.json else as_json(config.log_format),
        secrets=secrets_of(config),
    )
    director = OrchestratorEngine(config=config)
    director.telemetry.everywhere = True
    IDS.always(instance=director.config.instance_id)
    for blueprint in app.blueprints:
        director.register_blueprint(blueprint)
    if with_workers:
        for worker in app.workers:
            director.add_worker(worker)
    store = _store_of(config)
    if store is not None and not store.exists():
        log.info("new store at %s", store, extra={"action": "new_store"})
    _serve(director, config, output, redaction)
    return exit_codes.OK


def _serve(director: OrchestratorEngine, config: Config, output: Output, redaction: Redaction) -> None:
    """Until it ends. On loopback, others on this machine find us meanwhile."""
    served: list[LocalAddressFile] = []

    def begun(where: HttpServer) -> None:
        gc.freeze()  # what was recovered stays: full collections need not walk over it
        redaction.learn(secrets_of(config))  # the first start has just made its tokens
        served.append(_leave_address(config, where.url))
        greet(output, config, where.url)

    try:
        serve_until_signal(director, config.api_host, config.api_port, begun)
    finally:
        for address in served:
            address.remove()
    log.info("stopped", extra={"action": "stopped"})


def _leave_address(config: Config, url: str) -> LocalAddressFile:
    address = LocalAddressFile(config.state_dir, url)
    if not is_loopback(config.api_host):
        return address

    def found() -> None:
        log.warning("commands in this directory find %s from now on", url, extra={"action": "address_found"})

    try:
        other = address.leave(found)
    except OSError as error:  # nobody needs it who is told the address
        log.warning("cannot write the address into %s: %s", config.state_dir, error.strerror)
        return address
    if other is not None:
        log.warning(
            "another orchestrator serves in this directory: commands go to %s while it runs; "
            "name this one with --url %s, or give it a directory of its own with --dir",
            other,
            url,
            extra={"action": "address_taken"},
        )
    return address


def greet(output: Output, config: Config, url: str) -> None:
    """The one line that says where everything is."""
    if output.json:
        output.json_line({"url": url, "docs": f"{url}/docs", "tokens": tokens_of(config)})
    else:
        output.line(f"Regista is running at {url}   API docs: {url}/docs   tokens: {tokens_of(config)}")


def tokens_of(config: Config) -> str:
    """Where the tokens of client and worker are to be found: in files, in settings, or where we have put them."""
    files = {"CLIENT_TOKEN": CLIENT_FILE, "WORKER_TOKEN": WORKER_FILE}
    made = missing_tokens(config)
    if len(made) == len(files):
        return f"in {config.state_dir}/"
    places = {
        config.clients_config_path: bool(config.clients_config_path),
        "CLIENT_TOKEN": bool(config.client_token),
        str(Path(config.state_dir, CLIENT_FILE)): "CLIENT_TOKEN" in made,
        config.workers_config_path: bool(config.workers_config_path),
        "WORKER_TOKEN": bool(config.worker_token),
        str(Path(config.state_dir, WORKER_FILE)): "WORKER_TOKEN" in made,
    }
    return " and ".join(place for place, is_one in places.items() if is_one)
