"""Backends: which store and which history a setting names, and what the parts are told of the settings."""

import os
import socket
from hashlib import sha256

import msgspec

from .clock import Clock
from .config import Config
from .engines.native.settings import ExecutorSettings
from .errors import ConfigError
from .history.base import HistoryStorage
from .history.memory import MemoryHistory
from .history.store_only import NoHistory
from .machine.step import MachineSettings
from .model import RetryPolicy
from .storage.base import StorageBackend, shared_secret
from .storage.memory import MemoryStorage


def settings_of(config: Config) -> ExecutorSettings:
    """The part of the settings that the executor and the machine obey."""
    return ExecutorSettings(
        instance=config.instance_id,
        lease_s=config.lease_s,
        sticky_s=config.patience_s,
        max_suspended=config.executor_max_concurrent_jobs,
        machine=MachineSettings(
            handler_retry=RetryPolicy(
                max_attempts=config.job_max_retries + 1, first_s=config.handler_retry_first_s
            ),
            task_retry=RetryPolicy(max_attempts=config.job_max_retries + 1, lost_budget=config.lost_budget),
            attempt_timeout_s=config.worker_timeout_s,
            cancel_grace_s=config.cancel_grace_s,
        ),
    )


def told_apart(config: Config, storage: StorageBackend) -> Config:
    """On a shared store two of us on one machine must not have one name: leases would be anybody's."""
    host = socket.gethostname()
    if not storage.shared or config.instance_id != host:
        return config
    return msgspec.structs.replace(config, instance_id=f"{host}-{os.getpid()}")


def build_storage(name: str, clock: Clock, *, has_history: bool = True) -> StorageBackend:
    """The store that a setting names: `memory`, `sqlite:PATH`, or the URL of a Redis.

    Without a history of its own, a shared store cuts its outbox at a limit.
    """
    kind, _, path = name.partition(":")
    if kind == "memory" and not path:
        return MemoryStorage(clock)
    if kind == "sqlite" and path:
        from .storage.sqlite.store import SqliteStorage

        return SqliteStorage(path, clock)
    if kind in ("redis", "rediss", "unix") and path.startswith("//"):
        return _redis_storage(name, clock, has_history)
    raise ConfigError("REGISTA_STORAGE", "memory, sqlite:PATH or redis://HOST", name)


def _redis_storage(url: str, clock: Clock, has_history: bool) -> StorageBackend:
    try:
        from .storage.redis.store import OUTBOX_LIMIT, RedisStorage
    except ModuleNotFoundError as error:
        got = f"no module named {error.name}"
        raise ConfigError("REGISTA_STORAGE", "the redis extra (pip install 'regista[redis]')", got) from None
    return RedisStorage(url, clock, outbox_limit=None if has_history else OUTBOX_LIMIT)


def build_history(uri: str, storage: StorageBackend) -> HistoryStorage:
    """The history that a setting names; unset, it lies beside the store. Beside a shared store there is none."""
    kind, _, path = uri.partition(":")
    if storage.shared and uri and kind not in ("postgres", "postgresql"):
        # A file of one instance would take events away from all others.
        expected = "a PostgreSQL database, or nothing, beside a store that orchestrators share"
        raise ConfigError("HISTORY_DATABASE_URI", expected, uri)
    if kind == "sqlite" and path:
        from .history.sqlite import SqliteHistory

        return SqliteHistory(path)
    if kind in ("postgres", "postgresql") and path.startswith("//"):
        return _postgres_history(uri, storage)
    if uri:
        raise ConfigError("HISTORY_DATABASE_URI", "sqlite:PATH or postgresql://HOST/DATABASE", uri)
    if storage.shared:  # what lies beside it here would have holes

        async def newest() -> int:
            return (await storage.outbox(0, 0)).newest

        return NoHistory(newest)
    beside = getattr(storage, "path", None)
    if beside is not None:
        from .history.sqlite import SqliteHistory

        return SqliteHistory(beside.with_name(beside.stem + ".history" + beside.suffix))
    return MemoryHistory()


def _postgres_history(uri: str, storage: StorageBackend) -> HistoryStorage:
    try:
        from .history.postgres import PostgresHistory
    except ModuleNotFoundError as error:
        got = f"no module named {error.name}"
        expected = "the postgres extra (pip install 'regista[postgres]')"
        raise ConfigError("HISTORY_DATABASE_URI", expected, got) from None
    return PostgresHistory(uri, lambda: _cluster_of(storage))


async def history_version(uri: str) -> str:
    """The version of the PostgreSQL that a URI names; what keeps it from telling is raised. Changes nothing there."""
    try:
        from .history.postgres import server_version
    except ModuleNotFoundError as error:
        expected = "the postgres extra (pip install 'regista[postgres]')"
        raise ConfigError("HISTORY_DATABASE_URI", expected, f"no module named {error.name}") from None
    return await server_version(uri)


async def _cluster_of(storage: StorageBackend) -> str:
    """Names the store, as `WorkerService.cluster_id` does."""
    return sha256(await shared_secret(storage, "cluster")).hexdigest()[:16]
