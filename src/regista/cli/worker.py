"""`regista worker`: the workers of an app, in a process of their own."""

import argparse
from pathlib import Path

from ..config import Connection, WorkerConfig
from ..config.telemetry import as_json
from ..observe.log_context import IDS
from ..observe.logging import set_up
from ..observe.redaction import secrets_of
from ..payloads.files_service import build_files
from ..sdk.main import run
from ..tokens import WORKER_FILE, find_token
from . import exit_codes
from .app import load_app
from .errors import check_state_dir, name_errors_by_flag
from .output import output_for
from .tracing import traced


def work(args: argparse.Namespace) -> int:
    """Perform until SIGTERM or Ctrl-C, which mean: finish what runs, take nothing new."""
    config = config_for(args)
    secrets = secrets_of(config, Connection.from_env(state_dir=args.dir).state_dir)
    in_json = True if output_for(args).json else as_json(config.log_format)
    set_up(config.log_level, as_json=in_json, secrets=secrets)
    IDS.always(worker_id=config.worker_id)
    name, wanted = _parts(args.app)
    workers = load_app(name).pick_workers([*wanted, *(args.worker or ())])
    with traced(config, config.worker_id):
        run(workers, config, build_files(config))
    return exit_codes.OK


def _parts(app: str) -> tuple[str, list[str]]:
    """`app.py:gpu` is the worker gpu of app.py."""
    name, colon, worker = app.rpartition(":")
    return (name, [worker]) if colon and worker and not Path(app).exists() else (app, [])


def config_for(args: argparse.Namespace) -> WorkerConfig:
    """The settings of this process; the token of a local orchestrator is found where it left it."""
    check_state_dir(args.dir)
    state_dir = Connection.from_env(state_dir=args.dir).state_dir
    flags = {"orchestrator_url": "url", "max_concurrent_tasks": "concurrency", "queues": "queue"}
    with name_errors_by_flag(args, **flags, state_dir="dir", log_level="log_level"):
        return WorkerConfig.from_env(
            defaults={"token": find_token(state_dir, WORKER_FILE) or ""},
            orchestrator_url=args.url,
            max_concurrent_tasks=args.concurrency,
            queues=args.queue,
            state_dir=args.dir,
            log_level=args.log_level and args.log_level.upper(),
        )
