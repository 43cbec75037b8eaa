"""TaskFilesService: a worker whose payload store is not the orchestrator's says so."""

import asyncio
import logging
from pathlib import Path

import pytest

from regista.errors import PayloadUnavailable
from regista.payloads.base import claim_owner
from regista.payloads.files_service import TaskFilesService
from regista.payloads.memory import MemoryPayloads
from regista.payloads.scratch import ScratchDirectory


def service(tmp_path: Path) -> TaskFilesService:
    return TaskFilesService(MemoryPayloads(), ScratchDirectory(str(tmp_path)))


def test_another_store_than_the_orchestrators_is_warned_of_once_and_its_files_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        files = service(tmp_path)
        files.open("j1", "a1")

        for _ in range(2):
            await files.compare("home", "file:///srv", "one")

        with pytest.raises(PayloadUnavailable, match=r"expected .* \(file:///srv\), got memory:"):
            files.open("j1", "a1")

    asyncio.run(play())
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.action for each in warned] == ["payloads_differ"]  # type: ignore[attr-defined]


async def test_the_same_store_is_nothing_to_speak_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = service(tmp_path)
    await claim_owner(files.store, "one")
    await files.compare("other home", "file:///elsewhere", "two")
    caplog.clear()

    await files.compare("home", "file:///srv", "one")

    assert caplog.records == []
    files.open("j1", "a1")  # one of its orchestrators uses this store
