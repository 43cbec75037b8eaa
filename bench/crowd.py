"""A crowd of idle workers, each with a stream of its own: `python -m bench.crowd URL TOKEN COUNT`.

Says "ready" when all are connected, then keeps them alive until its standard input is closed.
"""

import asyncio
import sys

import aiohttp

from regista.workers.protocol import frames


async def join(http: aiohttp.ClientSession, url: str, number: int) -> aiohttp.ClientWebSocketResponse:
    """Register one worker and open its stream."""
    name = f"idle-{number}"
    body = {
        "worker_id": name,
        "supported_skills": ["nothing"],
        "resources": {"max_concurrent_tasks": 1},
        "current_tasks": [],
    }
    async with http.post(f"{url}/_worker/workers/register", json=body) as answer:
        answer.raise_for_status()
        session = (await answer.json())["session"]
    socket = await http.ws_connect(
        f"{url}/_worker/ws/{name}", protocols=(frames.PROTOCOL,), autoping=False, max_msg_size=0
    )
    await socket.send_bytes(frames.encode([frames.HelloFrame(session, [])]))
    return socket


async def main(url: str, token: str, count: int) -> None:
    """Everybody in, a hundred at a time; then a beat for each every ten seconds, spread evenly."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={frames.TOKEN_HEADER: token}) as http:
        sockets: list[aiohttp.ClientWebSocketResponse] = []
        for first in range(0, count, 100):
            wave = range(first, min(first + 100, count))
            sockets += await asyncio.gather(*[join(http, url, number) for number in wave])
        print("ready", flush=True)
        beat = frames.encode([frames.HeartbeatFrame([])])
        closed = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not closed.done():
            for index, socket in enumerate(sockets):
                await socket.send_bytes(beat)
                if index % max(1, count // 100) == 0:
                    await asyncio.wait([closed], timeout=0.1)
                    if closed.done():
                        break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
