"""Links to files before bad clients and a bad store: nobody takes a part for the whole, or everybody's turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from regista import Client, StateMachineBlueprint
from regista.api.file_transfer import LEAST_RATE
from regista.errors import BadFileName, PayloadUnavailable
from regista.payloads.memory import MemoryPayloads
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks


class Fading(MemoryPayloads):
    """Goes away in the middle of a file."""

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        async for piece in super().stream(path):
            yield piece
            raise PayloadUnavailable("the payload store is away")


def writer() -> StateMachineBlueprint:
    """A job whose handler writes a file, and reads it."""
    play = StateMachineBlueprint("writer")

    @play.handler_for("start", is_start=True, is_end=True)
    async def start(context, actions, task_files):  # type: ignore[no-untyped-def]
        await task_files.write_text("a.txt", "hello")
        actions.set_result(await task_files.read_text("a.txt"))

    return play


async def link(house: House, job_id: str, name: str, token: str = "t-ada") -> str:
    """A link to write a file."""
    answer = await house.post(f"/api/v1/jobs/{job_id}/files", {"name": name}, token=token)
    assert answer.status == 201, answer.body
    url: str = answer.json["url"]
    return url


async def dribble() -> AsyncIterator[bytes]:
    while True:
        yield b"x"
        await asyncio.sleep(0.05)


async def test_a_download_that_fails_in_the_middle_is_cut_and_has_no_problem_at_its_end() -> None:
    async with serving(asks(), payloads="memory") as house:
        service = house.director.filing.service
        assert service is not None
        service.store = service.outside = Fading()
        job = await house.submit("asks")
        # So long that a problem would fit in what is missing.
        async with house.session.put(
            await link(house, job["id"], "f"), data=BytesIO(b"x" * 1_048_876)
        ) as put:
            assert put.status == 200
        found = await house.get(f"/api/v1/jobs/{job['id']}/files/f")

        with pytest.raises(aiohttp.ClientPayloadError):
            async with house.session.get(found.json["url"]) as answer:
                await answer.read()


async def test_uploads_that_dribble_take_no_turn_of_handlers_or_of_other_clients(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"payloads": f"file:{tmp_path / 'p'}", "s3_max_concurrency": 8}
    async with serving(asks(), writer(), **settings) as house, AsyncExitStack() as stack:
        bobs = await house.submit("asks", token="t-bob")
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        urls = [await link(house, bobs["id"], f"f{number}", "t-bob") for number in range(10)]
        tasks = [asyncio.create_task(session.put(url, data=dribble())) for url in urls]
        await asyncio.sleep(0.3)

        async with asyncio.timeout(5), Client(house.url, "t-ada") as ada:
            job = await ada.submit("asks")
            assert await ada.files.upload(job.id, b"abc", "a") == "a"
            assert await ada.files.read(job.id, "a") == b"abc"
            done = await ada.wait((await ada.submit("writer")).id)
            assert (done.status, done.result) == ("finished", "hello")

        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_upload_that_only_dribbles_is_not_heard_to_the_end(tmp_path: Path) -> None:
    async with serving(asks(), payloads=f"file:{tmp_path / 'p'}", body_timeout_s=0.5) as house:
        job = await house.submit("asks")

        async def steady() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * LEAST_RATE
                await asyncio.sleep(0.1)

        async with asyncio.timeout(5):
            async with house.session.put(await link(house, job["id"], "f"), data=dribble()) as slow:
                assert slow.status == 408
                assert (await slow.json(content_type=None))["code"] == "body_timeout"
        async with house.session.put(await link(house, job["id"], "g"), data=steady()) as fine:
            assert fine.status == 200

        listed = await house.get(f"/api/v1/jobs/{job['id']}/files")
        assert [(each["name"], each["size"]) for each in listed.json["items"]] == [("g", 10 * LEAST_RATE)]


async def test_names_with_braces_have_links_and_a_file_is_no_folder(tmp_path: Path) -> None:
    async with serving(asks(), payloads=f"file:{tmp_path / 'p'}") as house, Client(house.url, "t-ada") as ada:
        job = await ada.submit("asks")

        for name in ("{x}", "{", "a/{b:c}", "%7Bx%7D"):
            await ada.files.upload(job.id, name.encode(), name)
            assert await ada.files.read(job.id, name) == name.encode()
        with pytest.raises(BadFileName):
            await ada.files.upload(job.id, b"", "{x}/b")
        url = URL(await link(house, job.id, "a"), encoded=True)
        async with house.session.put(url, data=b"x") as answer:
            assert answer.status == 400
