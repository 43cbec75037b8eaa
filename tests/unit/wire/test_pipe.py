"""Frames on their way out."""

import asyncio

from regista.wire import stream
from regista.wire.pipe import Pipe

FRAMES: list[stream.Up] = [
    stream.Started(["a-1"]),
    stream.Progress("a-1", 0.5, "half", {"frame": 7}),
    stream.Beat(["a-1"], ["llama"]),
    stream.Credit(-3),
    stream.Drain(),
    stream.Bye(),
]


class Socket:
    def __init__(self) -> None:
        self.messages: list[list[stream.Up]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.stuck = 0

    async def send(self, message: bytes) -> None:
        await self.gate.wait()
        self.messages.append(stream.decode_up(message))

    def on_stuck(self) -> None:
        self.stuck += 1


def test_frames_of_one_turn_leave_as_one_message_in_order() -> None:
    async def main() -> None:
        socket = Socket()
        pipe = Pipe(socket.send, socket.on_stuck)
        for frame in FRAMES:
            pipe.put(frame)
        await pipe.flush()
        pipe.put(FRAMES[0])
        await pipe.flush()
        await pipe.flush()
        assert socket.messages == [FRAMES, FRAMES[:1]]

    asyncio.run(main())


def test_a_message_is_cut_to_size_but_a_frame_never_is() -> None:
    async def main() -> None:
        socket = Socket()
        pipe = Pipe(socket.send, socket.on_stuck, max_bytes=60)
        large = stream.Started(["x" * 200])
        frames = [*FRAMES, large, *FRAMES]
        for frame in frames:
            pipe.put(frame)
        await pipe.flush()
        assert [frame for message in socket.messages for frame in message] == frames
        assert [large] in socket.messages

    asyncio.run(main())


def test_a_reader_that_does_not_read_is_told_of_once_and_nobody_waits() -> None:
    async def main() -> None:
        socket = Socket()
        socket.gate.clear()
        pipe = Pipe(socket.send, socket.on_stuck, most=10)
        pipe.put(stream.Bye())
        await asyncio.sleep(0.01)
        for _ in range(30):
            pipe.put(stream.Bye())
        assert socket.stuck == 1
        pipe.close()
        pipe.put(stream.Bye())
        await asyncio.sleep(0.01)
        assert socket.messages == []
        assert pipe.batch == []

    asyncio.run(main())


def test_a_socket_that_is_gone_is_noticed_by_whoever_reads_not_by_whoever_writes() -> None:
    async def main() -> None:
        async def gone(message: bytes) -> None:
            raise ConnectionResetError

        pipe = Pipe(gone, lambda: None)
        pipe.put(stream.Bye())
        await pipe.flush()

    asyncio.run(main())


def test_how_long_a_message_is_being_sent_can_be_seen() -> None:
    async def main() -> None:
        socket = Socket()
        socket.gate.clear()
        pipe = Pipe(socket.send, socket.on_stuck)
        pipe.put(stream.Bye())
        await asyncio.sleep(0.01)
        began = pipe.since
        socket.gate.set()
        await pipe.flush()
        assert (began is None, pipe.since is None) == (False, True)

    asyncio.run(main())
