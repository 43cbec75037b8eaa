"""Files on their way to a job."""

import asyncio
import gc
from pathlib import Path

from regista.client.files import _pieces


def test_an_upload_that_is_cut_off_leaves_no_file_open(tmp_path: Path) -> None:
    """Warnings are errors here: a file that is left open fails the test when it is collected."""
    (tmp_path / "a.txt").write_bytes(b"x" * 100)

    async def cut_off_after(turns: int) -> None:
        pieces = _pieces(tmp_path / "a.txt")

        async def send() -> None:
            async for _ in pieces:
                pass

        sending = asyncio.create_task(send())
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(2):  # the request gives up, and then the loop ends
            sending.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.to_thread(lambda: None)  # what was begun in a thread is over

    for turns in range(1, 8):
        asyncio.run(cut_off_after(turns))
    gc.collect()  # once for all: in a process that has run thousands of tests it takes long
