"""Files of jobs over HTTP: links of the orchestrator's own, and links that lead to a real S3 server."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from regista import ApiError, Client, StateMachineBlueprint, SyncClient
from regista.errors import (
    BadFileName,
    FileMissing,
    FileTooLarge,
    JobAlreadyTerminal,
    JobNotFound,
    PayloadsDisabled,
)
from regista.schemas.files import FileLink
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks
from tests.s3_server import S3Server
from tests.s3_server import serving as serving_s3
from tests.support import script

BIG = "x" * 2_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from serving_s3()


@pytest.fixture(params=["file", "s3"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a payload store: one that cannot sign links, and one that can."""
    if request.param == "file":
        return {"payloads": f"file:{tmp_path / 'payloads'}"}
    server: S3Server = request.getfixturevalue("server")
    settings = {name.lower(): value for name, value in server.settings.items()}
    return {**settings, "payloads": f"s3://payloads/{tmp_path.name}"}


def echo() -> StateMachineBlueprint:
    return script(lambda context, actions: actions.transition_to("done"), "done", name="echo")


async def in_pieces(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * 1000


async def test_a_client_writes_files_and_reads_them(payloads: dict[str, Any], tmp_path: Path) -> None:
    async with serving(asks(), **payloads) as house, Client(house.url, "t-ada") as client:
        job = await client.submit("asks")
        (tmp_path / "here.bin").write_bytes(os.urandom(3_000_000))

        assert await client.files.list(job.id) == []
        assert await client.files.upload(job.id, tmp_path / "here.bin") == "here.bin"
        await client.files.upload(job.id, b"of bytes", "folder/Übung 1.txt")

        found = await client.files.list(job.id)
        assert [(each.name, each.size) for each in found] == [
            ("folder/Übung 1.txt", 8),
            ("here.bin", 3_000_000),
        ]
        assert await client.files.read(job.id, "folder/Übung 1.txt") == b"of bytes"
        copy = await client.files.download(job.id, "here.bin", tmp_path / "copy.bin")
        assert copy.read_bytes() == (tmp_path / "here.bin").read_bytes()
        # What the job's own code sees is the same.
        assert await house.director.filing.open(job.id).read_text("folder/Übung 1.txt") == "of bytes"
        with pytest.raises(FileMissing):
            await client.files.read(job.id, "none")


async def test_a_link_is_good_for_one_file_one_way_and_a_while(payloads: dict[str, Any]) -> None:
    async with serving(asks(), **payloads) as house, Client(house.url, "t-ada") as client:
        job = await client.submit("asks")
        for name in ("a.txt", "b.txt"):
            await client.files.upload(job.id, name.encode(), name)
        link = await client.files.download_url(job.id, "a.txt", 60)
        assert (link.method, link.size, link.expires_in) == ("GET", 5, 60)

        async def status(url: str, method: str = "GET") -> int:
            async with house.session.request(
                method, _as_it_is(url), data=b"x" if method == "PUT" else None
            ) as got:
                return got.status

        assert await status(link.url) == 200  # and no token was sent
        assert await status(link.url.replace("a.txt", "b.txt")) == 403
        assert await status(link.url.replace("a.txt", "..%2Fa.txt")) in (400, 403, 404)
        assert await status(link.url, "PUT") in (403, 405)
        assert await status(link.url + "0") == 403
        short = await client.files.download_url(job.id, "a.txt", 1)
        await asyncio.sleep(2.1)
        assert await status(short.url) in (400, 403)


def _as_it_is(url: str) -> Any:
    from yarl import URL

    return URL(url, encoded=True)


async def test_files_are_the_owners_alone(payloads: dict[str, Any]) -> None:
    async with (
        serving(asks(), **payloads) as house,
        Client(house.url, "t-ada") as ada,
        Client(house.url, "t-bob") as bob,
        Client(house.url, "t-ops") as ops,
    ):
        job = await ada.submit("asks")
        await ada.files.upload(job.id, b"mine", "a.txt")

        for ask in (
            bob.files.list(job.id),
            bob.files.read(job.id, "a.txt"),
            bob.files.upload(job.id, b"", "b.txt"),
            bob.files.value(job.id, "0" * 64),
        ):
            with pytest.raises(JobNotFound):
                await ask
        assert await ops.files.read(job.id, "a.txt") == b"mine"


async def test_a_name_that_leads_out_of_the_job_is_refused(payloads: dict[str, Any]) -> None:
    async with serving(asks(), **payloads) as house, Client(house.url, "t-ada") as client:
        one, other = await client.submit("asks"), await client.submit("asks")
        await client.files.upload(other.id, b"secret", "a.txt")

        for name in (f"../{other.id}/a.txt", "/etc/passwd", "a//b", "..", "a\\b", "a/../../b"):
            with pytest.raises(BadFileName, match=r"like frames/001\.png"):
                await client.files.upload_url(one.id, name)
            with pytest.raises((BadFileName, FileMissing)):
                await client.files.download_url(one.id, name)
        with pytest.raises(BadFileName):  # more bytes than letters
            await client.files.upload_url(one.id, "ü" * 200)


async def test_an_ended_job_takes_no_files_and_has_none(payloads: dict[str, Any]) -> None:
    async with serving(echo(), asks(), **payloads) as house, Client(house.url, "t-ada") as client:
        job = await client.submit("asks")
        link = await client.files.upload_url(job.id, "late.txt")
        await client.files.upload(job.id, b"x", "a.txt")
        await client.cancel(job.id)

        with pytest.raises(JobAlreadyTerminal):
            await client.files.upload_url(job.id, "b.txt")
        async with asyncio.timeout(5):
            while await client.files.list(job.id):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        if link.url.startswith(house.url):
            got = await house.call("PUT", link.url.removeprefix(house.url), raw=b"late", token=None)
            assert (got.status, got.code) == (409, "job_already_terminal")


async def test_a_very_large_value_is_shown_as_its_size_and_fetched_by_its_checksum(
    payloads: dict[str, Any],
) -> None:
    async with serving(echo(), **payloads) as house, Client(house.url, "t-ada") as client:
        small, large = "s" * 300_000, BIG
        job = await client.get((await client.run("echo", {"small": small, "large": large}, 8)).id)

        shown = job.input["large"]["$offloaded"]
        assert shown["size"] > len(large)
        assert await client.files.value(job.id, shown["sha256"]) == large
        assert await client.files.fetch_offloaded(job.id, job.input) == {"small": small, "large": large}
        (listed,) = [each async for each in client.jobs()]
        assert listed.input["small"]["$offloaded"]["size"] > len(small)  # lists fetch nothing at all
        with pytest.raises(FileMissing):
            await client.files.value(job.id, "0" * 64)
        again = await client.fork(job.id)
        assert await client.files.fetch_offloaded(again.id, (await client.get(again.id)).input) == {
            "small": small,
            "large": large,
        }


async def test_a_list_of_files_comes_in_pages(tmp_path: Path) -> None:
    async with (
        serving(asks(), payloads=f"file:{tmp_path}", max_page=3) as house,
        Client(house.url, "t-ada") as client,
    ):
        job = await client.submit("asks")
        for number in range(7):
            await client.files.upload(job.id, b"", f"{number}")

        first = await house.get(f"/api/v1/jobs/{job.id}/files?limit=3")
        assert len(first.json["items"]) == 3
        assert [each.name for each in await client.files.list(job.id)] == list("0123456")


async def test_content_is_bounded_and_all_or_nothing(tmp_path: Path) -> None:
    async with (
        serving(asks(), payloads=f"file:{tmp_path}", max_file_bytes=10_000) as house,
        Client(house.url, "t-ada") as client,
    ):
        job = await client.submit("asks")
        await client.files.upload(job.id, b"before", "a")

        with pytest.raises(FileTooLarge):
            await client.files.upload(job.id, in_pieces(11), "a")
        link = await client.files.upload_url(job.id, "a")
        got = await house.call("PUT", link.url.removeprefix(house.url), raw=b"x" * 10_001, token=None)
        assert (got.status, got.code) == (413, "file_too_large")

        assert await client.files.read(job.id, "a") == b"before"
        assert await client.files.upload(job.id, in_pieces(10), "a") == "a"


async def test_a_download_is_something_to_be_saved_and_never_a_page(tmp_path: Path) -> None:
    async with serving(asks(), payloads=f"file:{tmp_path}") as house, Client(house.url, "t-ada") as client:
        job = await client.submit("asks")
        await client.files.upload(job.id, b"<script>", "deep/ü.html")
        link = await client.files.download_url(job.id, "deep/ü.html")
        path = link.url.removeprefix(house.url)

        got = await house.get(path, token=None)
        head = await house.call("HEAD", path, token=None)

        assert got.headers["Content-Type"] == "application/octet-stream"
        assert got.headers["Content-Disposition"] == "attachment; filename*=UTF-8''%C3%BC.html"
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert head.headers["Content-Length"] == "8"
        other = job.id[:-1] + ("1" if job.id.endswith("0") else "0")
        forged = await house.get(path.replace(job.id, quote(other)), token=None)
        assert (forged.status, forged.code) == (403, "link_invalid")


async def test_without_a_payload_store_everybody_is_told_so() -> None:
    async with serving(asks()) as house, Client(house.url, "t-ada") as client:
        job = await client.submit("asks")

        for ask in (client.files.list(job.id), client.files.upload(job.id, b"", "a")):
            with pytest.raises(PayloadsDisabled, match="REGISTA_PAYLOADS"):
                await ask


async def test_an_s3_server_that_is_gone_is_said_to_be_away(server: S3Server) -> None:
    settings: dict[str, Any] = {name.lower(): value for name, value in server.settings.items()}
    with S3Server(server._binary) as other:
        settings["s3_endpoint_url"] = other.url
        async with serving(asks(), echo(), **settings) as house, Client(house.url, "t-ada") as client:
            job = await client.submit("asks")
            other.stop()

            answer = await house.get(f"/api/v1/jobs/{job.id}/files")
            assert (answer.status, answer.code) == (503, "payloads_unavailable")
            # Jobs go on: a large value stays in its record until the payload store is back.
            kept = await client.run("echo", {"large": BIG}, 8)
            assert (kept.status, kept.input) == ("finished", {"large": BIG})


def test_the_sync_client_has_the_same_calls(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(asks(), payloads=f"file:{tmp_path / 'p'}") as house:
            await asyncio.to_thread(calls, house)

    def calls(house: House) -> None:
        with SyncClient(house.url, "t-ada") as client:
            job = client.submit("asks")
            client.files.upload(job.id, b"12345", "a.txt")
            assert isinstance(client.files.upload_url(job.id, "b.txt"), FileLink)
            assert client.files.download_url(job.id, "a.txt").size == 5
            assert [each.name for each in client.files.list(job.id)] == ["a.txt"]
            assert client.files.read(job.id, "a.txt") == b"12345"
            assert client.files.download(job.id, "a.txt", tmp_path) == tmp_path / "a.txt"
            with pytest.raises(FileMissing):
                client.files.value(job.id, "0")
            assert client.files.result(job) is None
            with pytest.raises(ApiError):
                client.files.upload_url(job.id, "c", -1)

    asyncio.run(play())
