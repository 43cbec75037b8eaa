"""Frames on their way out."""

import asyncio

from regista.workers.protocol import frames
from regista.workers.protocol.frame_sender import FrameSender

FRAMES: list[frames.FromWorker] = [
    frames.StartedFrame(["a-1"]),
    frames.ProgressFrame("a-1", 0.5, "half", {"frame": 7}),
    frames.HeartbeatFrame(["a-1"], ["llama"]),
    frames.DrainFrame(False),
    frames.DrainFrame(),
    frames.LeaveFrame(),
]


class Socket:
    def __init__(self) -> None:
        self.messages: list[list[frames.FromWorker]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.stuck = 0

    async def send(self, message: bytes) -> None:
        await self.gate.wait()
        self.messages.append(frames.decode_from_worker(message))

    def on_stuck(self) -> None:
        self.stuck += 1


async def test_frames_of_one_turn_leave_as_one_message_in_order() -> None:
    socket = Socket()
    pipe = FrameSender(socket.send, socket.on_stuck)
    for frame in FRAMES:
        pipe.put(frame)
    await pipe.flush()
    pipe.put(FRAMES[0])
    await pipe.flush()
    await pipe.flush()
    assert socket.messages == [FRAMES, FRAMES[:1]]


async def test_a_message_is_cut_to_size_but_a_frame_never_is() -> None:
    socket = Socket()
    pipe = FrameSender(socket.send, socket.on_stuck, max_bytes=60)
    large = frames.StartedFrame(["x" * 200])
    every = [*FRAMES, large, *FRAMES]
    for frame in every:
        pipe.put(frame)
    await pipe.flush()
    assert [frame for message in socket.messages for frame in message] == every
    assert [large] in socket.messages


async def test_a_reader_that_does_not_read_is_told_of_once_and_nobody_waits() -> None:
    socket = Socket()
    socket.gate.clear()
    pipe = FrameSender(socket.send, socket.on_stuck, most=10)
    pipe.put(frames.LeaveFrame())
    await asyncio.sleep(0.01)
    for _ in range(30):
        pipe.put(frames.LeaveFrame())
    assert socket.stuck == 1
    pipe.close()
    pipe.put(frames.LeaveFrame())
    await asyncio.sleep(0.01)
    assert socket.messages == []
    assert pipe.batch == []


async def test_a_socket_that_is_gone_is_noticed_by_whoever_reads_not_by_whoever_writes() -> None:
    async def gone(message: bytes) -> None:
        raise ConnectionResetError

    pipe = FrameSender(gone, lambda: None)
    pipe.put(frames.LeaveFrame())
    await pipe.flush()


async def test_how_long_a_message_is_being_sent_can_be_seen() -> None:
    socket = Socket()
    socket.gate.clear()
    pipe = FrameSender(socket.send, socket.on_stuck)
    pipe.put(frames.LeaveFrame())
    await asyncio.sleep(0.01)
    began = pipe.since
    socket.gate.set()
    await pipe.flush()
    assert (began is None, pipe.since is None) == (False, True)


async def test_order_stays_while_the_reader_is_behind() -> None:
    socket = Socket()
    socket.gate.clear()
    sender = FrameSender(socket.send, socket.on_stuck)
    sender.put(FRAMES[0])
    await asyncio.sleep(0.01)
    assert sender.is_blocked
    sender.put(FRAMES[1])
    sender.put(FRAMES[2])
    socket.gate.set()
    await sender.flush()
    assert (socket.messages, sender.is_blocked) == ([FRAMES[:1], FRAMES[1:3]], False)
