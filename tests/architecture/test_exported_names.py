import subprocess
import sys

import pytest

import regista


def test_the_door_is_this_small() -> None:
    assert sorted(regista.__all__) == [
        "ActionFactory",
        "ApiError",
        "ApprovalConflict",
        "AsyncDictStore",
        "BlueprintNotFound",
        "Client",
        "ClientConfig",
        "Config",
        "Connection",
        "Event",
        "EventType",
        "HistoryStorage",
        "IdempotencyConflict",
        "InvalidInputError",
        "Job",
        "JobAlreadyTerminal",
        "JobContext",
        "JobNotFound",
        "JobStatus",
        "MemoryStorage",
        "NotQuarantined",
        "OrchestratorEngine",
        "PermanentError",
        "QuotaExceeded",
        "RegistaError",
        "RemoteWorker",
        "RetryPolicy",
        "SqliteStorage",
        "StateMachineBlueprint",
        "StorageBackend",
        "StorageUnavailable",
        "Submission",
        "SyncClient",
        "Task",
        "TaskContext",
        "TaskFiles",
        "TaskResult",
        "TransientError",
        "Unreachable",
        "Worker",
        "WorkerConfig",
        "__version__",
        "load_blueprints",
    ]


def test_every_name_leads_somewhere() -> None:
    for name in regista.__all__:
        assert getattr(regista, name) is not None

    assert dir(regista) == sorted(regista.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(regista, "Nonsense")


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [("RedisStorage", "hiredis", "redis"), ("PostgresHistory", "asyncpg", "postgres")],
)
def test_a_name_that_needs_an_extra_says_which(name: str, missing: str, extra: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from regista import {name}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: regista.{name} needs the {extra} extra (pip install")
    assert last.endswith(f"no module named {missing}")
