import regista


def test_the_door_is_this_small() -> None:
    assert sorted(regista.__all__) == [
        "ActionFactory",
        "ApiError",
        "ApprovalConflict",
        "AsyncDictStore",
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
        "OrchestratorEngine",
        "PermanentError",
        "QuotaExceeded",
        "RegistaError",
        "RetryPolicy",
        "SqliteStorage",
        "StateMachineBlueprint",
        "StorageBackend",
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
