"""What tests of services share: callers, and an orchestrator without HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from regista import ClientConfig, Config, OrchestratorEngine, StateMachineBlueprint
from regista.model.audit import AUDIT_COLLECTION, AuditRecord, audit_record
from regista.services.caller import Caller, client_caller
from regista.storage.base import SharedState, StorageBackend

#: Two clients that must not see each other, and an operator who sees both.
ADA = client_caller(ClientConfig(name="ada"), "192.0.2.1")
BOB = client_caller(ClientConfig(name="bob"), "192.0.2.2")
OPS = client_caller(ClientConfig(name="ops", operator=True), "192.0.2.3")


@asynccontextmanager
async def orchestrator(
    *blueprints: StateMachineBlueprint, storage: StorageBackend | str = "memory", **settings: Any
) -> AsyncIterator[OrchestratorEngine]:
    """A running orchestrator with these blueprints and no port."""
    director = OrchestratorEngine(storage, Config(instance_id="one", **settings))
    for blueprint in blueprints:
        director.register_blueprint(blueprint)
    await director.start()
    try:
        yield director
    finally:
        await director.stop(0.0)


async def audit_records(records: SharedState) -> list[AuditRecord]:
    """All audit records, newest first."""
    return [audit_record(item) for item in await records.records(AUDIT_COLLECTION, limit=1000)]


async def actions_of(records: SharedState, caller: Caller) -> list[tuple[str, str]]:
    """Action and target of everything that is recorded about this caller, newest first."""
    return [(one.action, one.target) for one in await audit_records(records) if one.actor == caller.actor]
