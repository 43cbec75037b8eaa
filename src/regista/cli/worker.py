"""`regista worker`: the workers of an app, in a process of their own."""

import argparse
from pathlib import Path

from ..config import Connection, WorkerConfig
from ..config.telemetry import as_json
from ..payloads.files_service import build_files
from ..sdk.main import run
from ..tokens import WORKER_FILE, find_token
from . import exits, logs
from .app import load_app
from .log_ids import IDS
from .output import screen_for
from .redaction import secrets_of
from .refusals import by_flag, refuse_parent
from .tracing import traced


def work(asked: argparse.Namespace) -> int:
    """Perform until SIGTERM or Ctrl-C, which mean: finish what runs, take nothing new."""
    config = config_for(asked)
    secrets = secrets_of(config, Connection.from_env(state_dir=asked.dir).state_dir)
    in_json = True if screen_for(asked).json else as_json(config.log_format)
    logs.set_up(config.log_level, as_json=in_json, secrets=secrets)
    IDS.always(worker_id=config.worker_id)
    name, wanted = _parts(asked.app)
    workers = load_app(name).pick_workers([*wanted, *(asked.worker or ())])
    with traced(config, config.worker_id):
        run(workers, config, build_files(config))
    return exits.OK


def _parts(app: str) -> tuple[str, list[str]]:
    """`app.py:gpu` is the worker gpu of app.py."""
    name, colon, worker = app.rpartition(":")
    return (name, [worker]) if colon and worker and not Path(app).exists() else (app, [])


def config_for(asked: argparse.Namespace) -> WorkerConfig:
    """The settings of this process; the token of a local orchestrator is found where it left it."""
    refuse_parent(asked.dir)
    state_dir = Connection.from_env(state_dir=asked.dir).state_dir
    flags = {"orchestrator_url": "url", "max_concurrent_tasks": "concurrency", "queues": "queue"}
    with by_flag(asked, **flags, state_dir="dir", log_level="log_level"):
        return WorkerConfig.from_env(
            defaults={"token": find_token(state_dir, WORKER_FILE) or ""},
            orchestrator_url=asked.url,
            max_concurrent_tasks=asked.concurrency,
            queues=asked.queue,
            state_dir=asked.dir,
            log_level=asked.log_level and asked.log_level.upper(),
        )
