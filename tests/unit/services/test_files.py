from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from regista import Job, OrchestratorEngine, Submission
from regista.errors import (
    BadFileName,
    FileMissing,
    JobAlreadyTerminal,
    JobNotFound,
    LinkExpired,
    LinkInvalid,
    PayloadsDisabled,
)
from regista.services.files import FileService, SignedLink
from tests.acceptance.test_jobs import asks
from tests.services_kit import ADA, BOB, OPS, orchestrator

CALLS: list[Callable[[FileService, str], Coroutine[Any, Any, object]]] = [
    lambda files, job_id: files.list_page(BOB, job_id),
    lambda files, job_id: files.upload_link(BOB, job_id, "a.txt", 60.0),
    lambda files, job_id: files.download_link(BOB, job_id, "a.txt", 60.0),
    lambda files, job_id: files.value(BOB, job_id, "0" * 64),
]


async def submitted(director: OrchestratorEngine) -> Job:
    return await director.services.jobs.submit_one(ADA, Submission(blueprint="asks"))


def parts(link: SignedLink) -> dict[str, Any]:
    """The arguments of `check_link` that a link carries."""
    url = urlsplit(link.url)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return {
        "job_id": url.path.split("/")[3],
        "name": unquote(url.path.split("/", 4)[4]),
        "method": query["method"],
        "expires": int(query["expires"]),
        "signature": query["signature"],
    }


@pytest.mark.parametrize("number", range(len(CALLS)))
async def test_files_of_another_clients_job_do_not_exist(number: int, tmp_path: Path) -> None:
    async with orchestrator(asks(), payloads=f"file:{tmp_path}") as director:
        job = await submitted(director)
        await director.filing.open(job.id).write_text("a.txt", "secret")
        with pytest.raises(JobNotFound):
            await CALLS[number](director.services.files, job.id)


async def test_the_owner_and_operators_list_files_page_by_page(tmp_path: Path) -> None:
    async with orchestrator(asks(), payloads=f"file:{tmp_path}") as director:
        files, job = director.services.files, await submitted(director)
        for name in "abc":
            await director.filing.open(job.id).write_text(name, "x")
        for caller in (ADA, OPS):
            first = await files.list_page(caller, job.id, limit=2)
            assert [each.name for each in first.files] == ["a", "b"]
            assert first.end == "b"
            rest = await files.list_page(caller, job.id, first.end, limit=2)
            assert ([each.name for each in rest.files], rest.end) == (["c"], None)


async def test_a_signed_link_is_good_for_one_file_one_way_and_a_while(tmp_path: Path) -> None:
    async with orchestrator(asks(), payloads=f"file:{tmp_path}") as director:
        files, job = director.services.files, await submitted(director)
        link = await files.upload_link(ADA, job.id, "dir/a.txt", 60.0)
        signed = parts(link)
        files.check_link(**signed)
        for member, other in (("job_id", "x"), ("name", "b"), ("method", "GET"), ("expires", 1 << 40)):
            with pytest.raises(LinkInvalid):
                files.check_link(**{**signed, member: other})
        with pytest.raises(LinkExpired):
            files.check_link(**parts(await files.upload_link(ADA, job.id, "a", -5.0)))
        linked = await files.linked_upload(job.id, "dir/a.txt")
        assert linked.owner == "ada"


async def test_links_are_made_only_for_what_can_be_read_or_written(tmp_path: Path) -> None:
    async with orchestrator(asks(), payloads=f"file:{tmp_path}") as director:
        files, job = director.services.files, await submitted(director)
        with pytest.raises(BadFileName):
            await files.upload_link(ADA, job.id, "../a", 60.0)
        for name in ("absent", "../a"):
            with pytest.raises(FileMissing):
                await files.download_link(ADA, job.id, name, 60.0)
        await director.cancel(job.id)
        with pytest.raises(JobAlreadyTerminal):
            await files.upload_link(ADA, job.id, "a", 60.0)
        with pytest.raises(JobAlreadyTerminal):
            await files.linked_upload(job.id, "a")
        with pytest.raises(JobNotFound):
            await files.linked_upload("absent", "a")


async def test_without_a_payload_store_files_are_refused() -> None:
    async with orchestrator(asks()) as director:
        job = await submitted(director)
        with pytest.raises(PayloadsDisabled):
            await director.services.files.list_page(ADA, job.id)
