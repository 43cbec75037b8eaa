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


class Quick(Socket):
    """One that takes messages at once, for as long as its reader keeps up."""

    def __init__(self) -> None:
        super().__init__()
        self.keeps_up = True

    def write(self, message: bytes) -> bool:
        if self.keeps_up:
            self.messages.append(frames.decode_from_worker(message))
        return self.keeps_up


async def test_where_the_reader_keeps_up_the_frames_of_a_turn_leave_with_the_next_and_no_task_is_needed() -> (
    None
):
    socket = Quick()
    pipe = FrameSender(socket.send, socket.on_stuck, write=socket.write)
    before = asyncio.all_tasks()
    for frame in FRAMES:
        pipe.put(frame)
    assert (socket.messages, asyncio.all_tasks()) == ([], before)
    await asyncio.sleep(0)
    assert (socket.messages, asyncio.all_tasks()) == ([FRAMES], before)


async def test_what_is_flushed_has_left_before_the_next_turn() -> None:
    socket = Quick()
    pipe = FrameSender(socket.send, socket.on_stuck, write=socket.write)
    pipe.put(FRAMES[0])
    await pipe.flush()
    assert socket.messages == [FRAMES[:1]]
    await asyncio.sleep(0)
    assert socket.messages == [FRAMES[:1]]


async def test_a_reader_that_falls_behind_is_waited_for_and_the_order_stays() -> None:
    socket = Quick()
    socket.keeps_up = False
    socket.gate.clear()
    pipe = FrameSender(socket.send, socket.on_stuck, write=socket.write)
    pipe.put(FRAMES[0])
    await asyncio.sleep(0.01)
    assert pipe.is_blocked
    socket.keeps_up = True  # but what was said before must be read before
    pipe.put(FRAMES[1])
    pipe.put_now(FRAMES[2], frames.encode([FRAMES[2]]))
    await asyncio.sleep(0.01)
    assert socket.messages == []
    socket.gate.set()
    await pipe.flush()
    assert (socket.messages, pipe.is_blocked) == ([FRAMES[:1], FRAMES[1:3]], False)


async def test_a_whole_message_leaves_at_once_unless_something_is_before_it() -> None:
    socket = Quick()
    pipe = FrameSender(socket.send, socket.on_stuck, write=socket.write)
    message = frames.encode([FRAMES[2]])
    pipe.put_now(FRAMES[2], message)
    assert socket.messages == [[FRAMES[2]]]
    pipe.put(FRAMES[0])
    pipe.put_now(FRAMES[2], message)
    await pipe.flush()
    assert socket.messages == [[FRAMES[2]], [FRAMES[0], FRAMES[2]]]
    pipe.close()
    pipe.put_now(FRAMES[2], message)
    assert len(socket.messages) == 2


async def test_a_socket_that_is_gone_takes_nothing_and_nobody_who_writes_hears_of_it() -> None:
    def gone(message: bytes) -> bool:
        raise ConnectionResetError

    socket = Socket()
    pipe = FrameSender(socket.send, socket.on_stuck, write=gone)
    pipe.put(FRAMES[0])
    pipe.put_now(FRAMES[2], frames.encode([FRAMES[2]]))
    await pipe.flush()
    pipe.put_now(FRAMES[2], frames.encode([FRAMES[2]]))
    assert socket.messages == []
