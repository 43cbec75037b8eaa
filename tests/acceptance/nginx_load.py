"""A client under load, as a program: submits naps through the client library until its standard input ends.

It writes the id of each job that was acknowledged into the file that it is given. Whatever the library does not
get over ends it.
"""

import asyncio
import sys
from pathlib import Path

from regista import Client

#: So many submit at once.
CLIENTS = 4


async def main(notes: Path) -> None:
    stop = asyncio.Event()

    async def submit(client: Client) -> None:
        while not stop.is_set():
            job = await client.submit("nap", {"seconds": 1.0})
            with notes.open("a") as file:
                file.write(job.id + "\n")
            await asyncio.sleep(0.04)

    async with Client() as client:
        clients = [asyncio.create_task(submit(client)) for _ in range(CLIENTS)]
        await asyncio.to_thread(sys.stdin.read)
        stop.set()
        await asyncio.gather(*clients)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
