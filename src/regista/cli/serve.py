"""`regista serve`: the orchestrator of an app, until it is told to stop."""

import argparse
from pathlib import Path

from .. import site
from ..config import Config
from ..orchestrator import OrchestratorEngine
from ..tokens import CLIENT_FILE, WORKER_FILE
from . import exits, logs
from .app import App, load_app
from .output import Screen, screen_for
from .refusals import UsageError


def serve(asked: argparse.Namespace) -> int:
    """Serve the blueprints of the app. Its workers are left to `regista worker`."""
    config = config_for(asked)
    if asked.app is None and not config.blueprints_dir:
        raise UsageError("expected an APP, or BLUEPRINTS_DIR in the environment; got neither")
    app = App("", (), ())
    if asked.app is not None:
        app = load_app(asked.app)
        app.need_blueprints()
    return perform(asked, config, app, with_workers=False)


def config_for(asked: argparse.Namespace) -> Config:
    """The settings of this process: flags, then the environment, then the command line's own defaults."""
    storage = asked.storage
    if storage is not None and storage.startswith(("redis://", "rediss://")):
        raise UsageError(
            f"--storage {storage}: Redis comes with the redis extra, which this version does not have yet; "
            "use memory or sqlite:PATH"
        )
    state_dir = Config.from_env(state_dir=asked.dir).state_dir
    return Config.from_env(
        defaults={"storage": f"sqlite:{Path(state_dir, 'jobs.db')}"},
        storage=storage,
        state_dir=asked.dir,
        api_host=asked.host,
        api_port=asked.port,
        log_level=asked.log_level and asked.log_level.upper(),
    )


def perform(asked: argparse.Namespace, config: Config, app: App, *, with_workers: bool) -> int:
    """Build the orchestrator, serve until a signal, and return when everything is put away."""
    screen = screen_for(asked)
    logs.set_up(config.log_level, config.tz, as_json=True if screen.json else None)
    director = OrchestratorEngine(config=config)
    for blueprint in app.blueprints:
        director.register_blueprint(blueprint)
    if with_workers:
        for worker in app.workers:
            director.add_worker(worker)
    site.run(director, config.api_host, config.api_port, lambda where: greet(screen, config, where.url))
    return exits.OK


def greet(screen: Screen, config: Config, url: str) -> None:
    """The one line that says where everything is."""
    if screen.json:
        screen.record({"url": url, "docs": f"{url}/docs", "tokens": tokens_of(config)})
    else:
        screen.say(f"Regista serves at {url} · tokens: {tokens_of(config)} · docs: {url}/docs")


def tokens_of(config: Config) -> str:
    """Where the tokens of client and worker are to be found."""
    named = {CLIENT_FILE: config.client_token, WORKER_FILE: config.worker_token}
    kept = [name for name, given in named.items() if not given]
    if not kept:
        return "CLIENT_TOKEN and WORKER_TOKEN"
    if len(kept) == len(named):
        return f"in {config.state_dir}/"
    return f"{Path(config.state_dir, kept[0])} and the environment"
