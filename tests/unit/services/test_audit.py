import asyncio
import logging

import pytest

from regista.clock import SystemClock
from regista.errors import OperatorsOnly, StorageUnavailable
from regista.model import RecordWrite
from regista.services.audit import AuditFilter, AuditService
from regista.storage.memory import MemoryStorage
from tests.services_kit import ADA, OPS, audit_records


class Unavailable(MemoryStorage):
    async def put_records(self, writes: object) -> list[bool]:
        raise StorageUnavailable("away")


def service(storage: MemoryStorage) -> AuditService:
    return AuditService(storage, SystemClock(), "one", keep_days=1)


async def refuse() -> None:
    raise ValueError("no")


async def test_an_action_is_recorded_with_its_result() -> None:
    storage = MemoryStorage()
    await storage.start()
    audit = service(storage)

    async def work() -> str:
        return "j-1"

    assert (
        await audit.perform(OPS, "schedule.trigger", "nightly", work(), lambda job: {"job_id": job}) == "j-1"
    )
    (record,) = await audit_records(storage)
    assert (record.actor, record.action, record.target) == ("operator:ops", "schedule.trigger", "nightly")
    assert (record.address, record.instance, record.facts) == ("192.0.2.3", "one", {"job_id": "j-1"})


async def test_a_caller_that_is_cancelled_leaves_neither_an_action_without_record_nor_the_reverse() -> None:
    storage = MemoryStorage()
    await storage.start()
    audit, go, done = service(storage), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(True)

    request = asyncio.create_task(audit.perform(OPS, "worker.drain", "w", work()))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert await audit_records(storage) == []
    go.set()
    await audit.stop()  # a stop waits for what has started

    assert done == [True]
    assert [one.action for one in await audit_records(storage)] == ["worker.drain"]


async def test_an_action_that_fails_is_not_recorded() -> None:
    storage = MemoryStorage()
    await storage.start()
    with pytest.raises(ValueError, match="no"):
        await service(storage).perform(OPS, "worker.drain", "w", refuse())
    assert await audit_records(storage) == []


async def test_a_record_that_the_store_does_not_take_costs_the_caller_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = service(Unavailable())
    with caplog.at_level(logging.INFO, "regista.audit"):
        await audit.record(ADA, "webhook.discard", "d")
    levels = [record.levelname for record in caplog.records if record.name == "regista.audit"]
    assert levels == ["INFO", "WARNING"]


async def test_records_are_listed_for_operators_only_and_by_what_is_wanted() -> None:
    storage = MemoryStorage()
    await storage.start()
    audit = service(storage)
    for caller, action, target in ((OPS, "worker.drain", "w"), (ADA, "webhook.discard", "d")):
        await audit.record(caller, action, target)

    with pytest.raises(OperatorsOnly):
        await audit.list_page(ADA, AuditFilter())

    every = await audit.list_page(OPS, AuditFilter())
    assert [record.action for record in every.items] == ["webhook.discard", "worker.drain"]
    mine = await audit.list_page(OPS, AuditFilter(actor="client:ada", action="webhook.discard", target="d"))
    assert len(mine.items) == 1
    assert (await audit.list_page(OPS, AuditFilter(target="other"))).items == []


async def test_a_page_ends_where_the_next_one_begins() -> None:
    storage = MemoryStorage()
    await storage.start()
    audit = service(storage)
    for number in range(3):
        await audit.record(OPS, "worker.drain", str(number))

    first = await audit.list_page(OPS, AuditFilter(), limit=2)
    assert first.end is not None
    rest = await audit.list_page(OPS, AuditFilter(), first.end, limit=2)
    assert [one.target for one in (*first.items, *rest.items)] == ["2", "1", "0"]
    assert rest.end is None


async def test_the_record_of_an_action_on_a_job_is_for_the_engine_to_write() -> None:
    storage = MemoryStorage()
    await storage.start()
    deed = service(storage).action(ADA, "job.cancel", "j-1", reason="x")
    assert deed is not None
    assert deed.actor == "client:ada"
    assert isinstance(deed.record, RecordWrite)
    assert await audit_records(storage) == []
