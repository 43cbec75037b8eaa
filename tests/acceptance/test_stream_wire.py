"""The stream's server end, spoken to by hand: what it accepts, and what it makes of nonsense."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from regista import ActionFactory, EventType, JobContext, JobStatus, MemoryStorage, StateMachineBlueprint
from regista.model import TaskResult
from regista.storage.base import Heartbeat
from regista.worker import Worker
from regista.workers.protocol import frames
from tests.acceptance.stream_kit import TOKEN, House, connected, play, until, until_async

HEADERS = {"X-Worker-Token": TOKEN}


class Raw:
    """A worker that says only what it is told to."""

    def __init__(self, house: House, http: aiohttp.ClientSession, worker_id: str = "raw") -> None:
        self._house = house
        self._http = http
        self.id = worker_id
        self.session = 0
        self.ws: aiohttp.ClientWebSocketResponse
        self._heard: list[frames.ToWorker] = []

    async def register(self, capacity: int = 2) -> dict[str, Any]:
        body = {
            "worker_id": self.id,
            "supported_skills": ["work"],
            "resources": {"max_concurrent_tasks": capacity},
            "current_tasks": [],
        }
        url = f"{self._house.url}/_worker/workers/register"
        async with self._http.post(url, json=body, headers=HEADERS) as answer:
            assert answer.status == 200, await answer.text()
            told: dict[str, Any] = await answer.json()
        self.session = told["session"]
        return told

    async def connect(self, *batch: frames.FromWorker) -> None:
        self.ws = await self._http.ws_connect(
            f"{self._house.url}/_worker/ws/{self.id}", protocols=(frames.PROTOCOL,), headers=HEADERS
        )
        await self.say(*(batch or [frames.HelloFrame(self.session, [])]))

    async def poll(self) -> list[dict[str, Any]]:
        """Ask for tasks the other way, under the same session."""
        url = f"{self._house.url}/_worker/workers/{self.id}/tasks/next"
        asked = {"session": str(self.session), "timeout": "5", "limit": "1"}
        async with self._http.get(url, params=asked, headers=HEADERS) as answer:
            assert answer.status == 200, await answer.text()
            told = await answer.json()
        return list(told["tasks"]) if isinstance(told, dict) else list(told)

    async def say(self, *batch: frames.FromWorker) -> None:
        await self.ws.send_bytes(frames.encode(batch))

    async def hear(self) -> frames.ToWorker:
        if not self._heard:
            message = await self.ws.receive(timeout=5)
            assert message.type is aiohttp.WSMsgType.BINARY, message
            self._heard = frames.decode_to_worker(message.data)
        return self._heard.pop(0)

    async def closed(self) -> int | None:
        while not self.ws.closed:
            await self.ws.receive(timeout=5)
        return self.ws.close_code


@asynccontextmanager
async def raw(house: House, worker_id: str = "raw") -> AsyncIterator[Raw]:
    async with aiohttp.ClientSession() as http:
        yield Raw(house, http, worker_id)


def test_a_conversation_from_hello_to_bye() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            told = await worker.register()
            assert told["stream"] == {"url": "/_worker/ws/raw", "protocol": 1}
            await worker.connect()
            welcome = await worker.hear()
            assert welcome == frames.WelcomeFrame([], house.config.lease_s, house.config.max_body_bytes)
            job = await house.submit({"n": 1})
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            assert (offer.type, offer.params, offer.attempt, offer.job_id) == ("work", {"n": 1}, 1, job.id)
            await worker.say(frames.HeartbeatFrame([offer.attempt_id]))
            assert await worker.hear() == frames.HeartbeatAckFrame([])
            result = TaskResult(task_id=offer.attempt_id, job_id=job.id, data={"n": 2})
            await worker.say(frames.ResultFrame(result), frames.ResultFrame(result))
            acks = await worker.hear()
            assert isinstance(acks, frames.AcksFrame)
            assert set(acks.accepted) == {offer.attempt_id}
            assert (await house.wait(job)).data == {"n": 2}
            await worker.say(frames.LeaveFrame())
            assert await worker.closed() == 1000
            assert await house.director.storage.workers() == []

    play(main())


@pytest.mark.parametrize("how", ["one message", "two messages", "beats without it"])
def test_a_result_that_was_told_before_the_goodbye_counts(how: str) -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            result = frames.ResultFrame(TaskResult(task_id=offer.attempt_id, job_id=job.id))
            if how == "one message":
                await worker.say(result, frames.LeaveFrame())
            elif how == "two messages":
                await worker.say(result)
                await worker.say(frames.LeaveFrame())
            else:
                await worker.say(frames.StartedFrame([offer.attempt_id]), result, frames.HeartbeatFrame([]))
                await worker.say(frames.HeartbeatFrame([]), frames.LeaveFrame())
            while isinstance(heard := await worker.hear(), frames.HeartbeatAckFrame):
                pass
            assert heard == frames.AcksFrame([offer.attempt_id], {})
            assert await worker.closed() == 1000
            assert (await house.wait(job)).status is JobStatus.FINISHED
            assert {"task_lost", "task_undelivered"}.isdisjoint(await house.events(job))

    play(main())


def test_one_that_says_goodbye_is_offered_nothing_while_its_last_result_is_written_down() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            waits = await house.submit()
            result = TaskResult(task_id=offer.attempt_id, job_id=job.id)
            await worker.say(frames.ResultFrame(result), frames.LeaveFrame())
            assert isinstance(await worker.hear(), frames.AcksFrame)
            assert await worker.closed() == 1000
            assert "task_lost" not in await house.events(waits)

    play(main())


def test_a_result_of_an_attempt_that_is_over_is_refused_with_the_reason() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register()
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            stale = TaskResult(task_id=f"{offer.id}-7", job_id=job.id)
            unknown = TaskResult(task_id="nobody_1_0-1", job_id="nobody")
            await worker.say(frames.ResultFrame(stale), frames.ResultFrame(unknown))
            refused: dict[str, str] = {}
            while len(refused) < 2:
                acks = await worker.hear()
                assert isinstance(acks, frames.AcksFrame)
                refused |= acks.refused
            assert refused == {stale.task_id: "stale_task", unknown.task_id: "job_not_found"}

    play(main())


def test_results_that_come_together_are_each_acknowledged_though_a_handler_dawdles() -> None:
    script = StateMachineBlueprint("script")

    @script.handler_for("start", is_start=True)
    async def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "done"})

    @script.handler_for("done", is_end=True)
    async def done(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(context.state_history["sleeps_s"])

    async def main() -> None:
        async with House(script) as house, raw(house) as worker:
            await worker.register(3)
            await worker.connect()
            await worker.hear()
            jobs = [await house.submit() for _ in range(3)]
            offers = [await worker.hear() for _ in jobs]
            attempts = [offer.attempt_id for offer in offers if isinstance(offer, frames.TaskFrame)]
            results = [
                TaskResult(task_id=attempt, job_id=job.id, data={"sleeps_s": sleeps_s})
                for attempt, job, sleeps_s in zip(attempts, jobs, (0.2, 0, 0.2), strict=True)
            ]
            stale = TaskResult(task_id="nobody_1_0-1", job_id="nobody")
            await worker.say(*(frames.ResultFrame(result) for result in [*results, stale]))
            accepted: list[str] = []
            refused: dict[str, str] = {}
            while len(accepted) + len(refused) < 4:
                acks = await worker.hear()
                assert isinstance(acks, frames.AcksFrame)
                accepted += acks.accepted
                refused |= acks.refused
            assert (sorted(accepted), list(refused)) == (sorted(attempts), [stale.task_id])
            assert {(await house.wait(job)).status for job in jobs} == {JobStatus.FINISHED}

    play(main())


def test_nobody_speaks_for_another() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as honest, raw(house, "liar") as liar:
            await honest.register()
            await honest.connect()
            await honest.hear()
            job = await house.submit()
            offer = await honest.hear()
            assert isinstance(offer, frames.TaskFrame)
            await liar.register()
            await liar.connect()
            await liar.hear()
            lie = TaskResult(task_id=offer.attempt_id, job_id=job.id, worker_id="raw", data={"by": "liar"})
            await liar.say(frames.ProgressFrame(offer.attempt_id, 0.9, "nearly"), frames.ResultFrame(lie))
            acks = await liar.hear()
            assert acks == frames.AcksFrame([], {offer.attempt_id: "worker_mismatch"})
            truth = TaskResult(task_id=offer.attempt_id, job_id=job.id, data={"by": "raw"})
            await honest.say(frames.ResultFrame(truth))
            assert (await house.wait(job)).data == {"by": "raw"}

    play(main())


@pytest.mark.parametrize(
    ("nonsense", "code"),
    [
        (b"\xc1junk", 1007),
        (frames.encode([["unheard", 1]]), 1007),
        (frames.encode({"a": 1}), 1007),
        ("text", 1003),
    ],
)
def test_nonsense_closes_the_socket_and_harms_nobody(
    nonsense: bytes | str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register()
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            if isinstance(nonsense, str):
                await worker.ws.send_str(nonsense)
            else:
                await worker.ws.send_bytes(nonsense)
            assert await worker.closed() == code
            # A closed socket changes nothing: the same session comes back and still holds its task.
            await worker.connect(frames.HelloFrame(worker.session, [offer.attempt_id]))
            await worker.hear()
            await worker.say(frames.ResultFrame(TaskResult(task_id=offer.attempt_id, job_id=job.id)))
            assert (await house.wait(job)).status is JobStatus.FINISHED

    play(main())
    assert "Traceback" not in caplog.text


def test_a_first_word_that_is_no_hello_is_refused_and_an_unknown_session_must_register() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.connect(frames.LeaveFrame())
            assert await worker.closed() == 1008
            await worker.connect(frames.HelloFrame(99, []))
            assert await worker.hear() == frames.RegisterAgainFrame()
            assert await worker.closed() == 1000

    play(main())


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_token_there_is_no_stream(token: str) -> None:
    async def main() -> None:
        async with House() as house, aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(
                    f"{house.url}/_worker/ws/raw",
                    protocols=(frames.PROTOCOL,),
                    headers={"X-Worker-Token": token},
                )
            assert refused.value.status == 401

    play(main())


def test_a_newer_session_takes_the_place_of_an_older_one_which_is_told_and_closed() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as old, raw(house) as new:
            await old.register()
            await old.connect()
            await old.hear()
            await new.register()
            await new.connect()
            assert isinstance(await new.hear(), frames.WelcomeFrame)
            again = await old.hear()
            assert isinstance(again, frames.RegisterAgainFrame)
            assert again.displaced
            assert again.by.startswith("127.0.0.1:")
            assert await old.closed() == 1000
            await house.submit()
            assert isinstance(await new.hear(), frames.TaskFrame)

    play(main())


def test_two_workers_with_one_id_are_warned_of_with_the_addresses_of_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with House() as house, raw(house) as old, raw(house) as new:
            for worker in (old, new):
                await worker.register()
                await worker.connect()
                await worker.hear()
            assert await old.closed() == 1000

    play(main())

    (warning,) = [record.getMessage() for record in caplog.records if "of two workers" in record.message]
    assert len(set(re.findall(r"127\.0\.0\.1:\d+", warning))) == 2
    assert "WORKER_ID" in warning


def test_a_stream_that_is_silent_for_a_lease_is_dropped_and_nothing_more_offered_to_it() -> None:
    async def main() -> None:
        async with House(lease_s=1.0) as house, raw(house) as worker:
            await worker.register()
            await worker.connect()
            await worker.hear()
            assert await worker.closed() == 1006
            job = await house.submit()
            await asyncio.sleep(0.1)
            assert (await house.director.get(job.id)).status is JobStatus.WAITING_FOR_WORKER

    play(main())


def test_one_that_polls_since_its_stream_is_dead_is_offered_tasks_whatever_the_stream_still_says() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(2)
            await worker.connect(frames.HelloFrame(worker.session, []))
            await worker.hear()
            # when: the stream is silent and open, and the same session polls
            first = asyncio.create_task(worker.poll())
            find = house.director.dispatcher.find
            await until(lambda: (one := find(worker.id)) is not None and one.credit == 1)
            with suppress(ConnectionError):  # the stream is being closed
                await worker.say(frames.DrainFrame())
            assert await worker.closed() in (1000, 1006)  # 1006: it wrote while the close was on its way
            one = find(worker.id)
            assert one is not None
            assert (one.credit, one.draining, one.disconnected_at) == (1, False, None)
            # then: the stream's end is not the worker's
            job = await house.submit()
            (task,) = await first
            assert task["job_id"] == job.id

    play(main())


def test_beats_of_a_dead_stream_say_nothing_of_what_was_polled() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(2)
            await worker.connect()
            await worker.hear()
            polling = asyncio.create_task(worker.poll())
            await until(lambda: (one := house.director.dispatcher.find("raw")) and one.credit == 1)
            job = await house.submit()
            await polling
            with suppress(ConnectionError):  # the stream is being closed
                beats = [frames.HeartbeatFrame([]) for _ in range(3)]
                await worker.say(*beats)
            await worker.closed()
            assert "task_undelivered" not in await house.events(job)

    play(main())


class Stuck(MemoryStorage):
    """A store that sometimes takes its time for a heartbeat, as one does that was away."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = asyncio.Event()
        self.moves.set()

    async def heartbeat(self, beats: Sequence[Heartbeat]) -> list[bool]:
        await self.moves.wait()
        return await super().heartbeat(beats)


def test_beats_that_stood_in_line_say_nothing_of_what_was_offered_since() -> None:
    async def main() -> None:
        storage = Stuck()
        async with House(storage=storage) as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            storage.moves.clear()
            for _ in range(4):
                await worker.say(frames.HeartbeatFrame([]))
            await asyncio.sleep(0.05)
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            storage.moves.set()
            assert [await worker.hear() for _ in range(4)] == 4 * [frames.HeartbeatAckFrame([])]
            assert "task_undelivered" not in await house.events(job)
            # But one that was written since is believed, and so is a later one.
            for pause_s in (0.05, 2.1):
                await asyncio.sleep(pause_s)
                await worker.say(frames.HeartbeatFrame([]))
            await house.until_event(job, EventType.TASK_UNDELIVERED)

    play(main())


def test_beats_of_the_idle_that_wait_for_the_store_say_nothing_of_what_was_offered_since() -> None:
    async def main() -> None:
        storage = Stuck()
        async with House(storage=storage) as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            for _ in range(2):  # from the second on it is heard together with others
                await worker.say(frames.HeartbeatFrame([]))
                assert await worker.hear() == frames.HeartbeatAckFrame([])
            storage.moves.clear()
            for _ in range(4):
                await worker.say(frames.HeartbeatFrame([]))
            await asyncio.sleep(0.1)
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            await asyncio.sleep(2.1)  # long enough for two of them to count, if they did
            storage.moves.set()
            assert [await worker.hear() for _ in range(4)] == 4 * [frames.HeartbeatAckFrame([])]
            assert "task_undelivered" not in await house.events(job)

    play(main())


def test_an_idle_worker_keeps_its_lease_by_beats_alone_and_loses_it_without_them() -> None:
    async def main() -> None:
        async with House(lease_s=0.5) as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            for _ in range(8):
                await asyncio.sleep(0.15)
                await worker.say(frames.HeartbeatFrame([]))
                assert await worker.hear() == frames.HeartbeatAckFrame([])
            job = await house.submit()
            assert isinstance(await worker.hear(), frames.TaskFrame)
            await house.until_event(job, EventType.TASK_LOST)

    play(main())


def test_an_idle_worker_whose_session_is_over_is_told_with_its_next_beat() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            for _ in range(2):
                await worker.say(frames.HeartbeatFrame([]))
                assert await worker.hear() == frames.HeartbeatAckFrame([])
            assert await house.director.storage.forget_worker("raw", worker.session)
            await worker.say(frames.HeartbeatFrame([]))
            assert await worker.hear() == frames.RegisterAgainFrame()
            assert await worker.closed() == 1000

    play(main())


def test_what_the_store_says_an_idle_worker_has_is_taken_back_although_its_seat_is_empty() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(1)
            await worker.connect()
            await worker.hear()
            await worker.say(frames.HeartbeatFrame([]))
            assert await worker.hear() == frames.HeartbeatAckFrame([])
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            known = house.director.dispatcher.find("raw")
            assert known is not None
            known.attempts.clear()  # as after an offer that crossed a new connection
            for pause_s in (0.05, 2.1):
                await asyncio.sleep(pause_s)
                await worker.say(frames.HeartbeatFrame([]))
            await house.until_event(job, EventType.TASK_UNDELIVERED)

    play(main())


def test_words_of_every_kind_are_heard_in_the_order_in_which_they_were_said() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register(3)
            await worker.connect()
            await worker.hear()
            jobs = [await house.submit() for _ in range(3)]
            offers = [await worker.hear() for _ in jobs]
            ids = [offer.attempt_id for offer in offers if isinstance(offer, frames.TaskFrame)]
            results = [
                frames.ResultFrame(TaskResult(task_id=one, job_id=job.id, data={"n": n}))
                for n, (one, job) in enumerate(zip(ids, jobs, strict=True))
            ]
            # A beat in the middle waits for the store: what comes after it must not overtake it.
            await worker.say(results[0], frames.HeartbeatFrame(ids[1:]), results[1])
            await worker.say(results[2])
            await worker.say(frames.HeartbeatFrame([]), frames.LeaveFrame())
            heard = []
            while not worker.ws.closed:
                message = await worker.ws.receive(timeout=5)
                if message.type is aiohttp.WSMsgType.BINARY:
                    heard += frames.decode_to_worker(message.data)
            acks = [one for frame in heard if isinstance(frame, frames.AcksFrame) for one in frame.accepted]
            assert (acks, heard.count(frames.HeartbeatAckFrame([]))) == (ids, 2)
            ended = [await house.wait(job) for job in jobs]
            assert [job.data for job in ended] == [{"n": 0}, {"n": 1}, {"n": 2}]

    play(main())


def masked(message: bytes) -> bytes:
    """A WebSocket frame of a client, with a mask that changes nothing."""
    return b"\x82" + bytes([0x80 | len(message)]) + bytes(4) + message


def test_a_worker_that_speaks_but_does_not_read_is_dropped_and_the_tasks_done_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upgrade = {
        "Host": "x", "Upgrade": "websocket", "Connection": "Upgrade", "X-Worker-Token": TOKEN,
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": frames.PROTOCOL,
    }  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in upgrade.items())

    async def main() -> None:
        async with House(lease_s=1.0) as house, raw(house) as worker:
            await worker.register(capacity=100)
            reader, writer = await asyncio.open_connection("127.0.0.1", house.port, limit=1024)
            writer.write(f"GET /_worker/ws/raw HTTP/1.1\r\n{lines}\r\n".encode())
            writer.write(masked(frames.encode([frames.HelloFrame(worker.session, [])])))
            await reader.readuntil(b"\r\n\r\n")
            jobs = [await house.submit({"large": "x" * 500_000}) for _ in range(40)]
            while "stream_dropped" not in [getattr(one, "action", "") for one in caplog.records]:
                # So often that the budget of lost attempts would be gone, if these beats counted as misses.
                writer.write(masked(frames.encode([frames.HeartbeatFrame(["unknown"])])))
                await asyncio.sleep(0.02)
            writer.transport.abort()
            other = Worker("other")
            other.task("work")(lambda params: {"by": "other"})
            async with connected(other, house.url):
                ended = [await house.wait(job, 6) for job in jobs]
                assert [(job.data, job.error) for job in ended] == [({"by": "other"}, None)] * 40

    play(main())


def test_while_the_socket_is_closed_nothing_is_offered_and_the_next_one_gets_it() -> None:
    async def main() -> None:
        async with House(lease_s=30) as house, raw(house) as worker:
            await worker.register()
            await worker.connect()
            await worker.hear()
            await worker.ws.close()
            known = house.director.dispatcher.find("raw")
            assert known is not None
            await until(lambda: known.free == 0)
            job = await house.submit()
            other = Worker("other")
            other.task("work")(lambda params: {"by": "other"})
            async with connected(other, house.url):
                assert (await house.wait(job)).data == {"by": "other"}

    play(main())


def test_people_see_that_a_worker_is_not_connected_and_until_when_its_task_is_its_own() -> None:
    async def main() -> None:
        async with House(lease_s=30) as house, raw(house) as worker, aiohttp.ClientSession() as http:

            async def ask(path: str) -> dict[str, Any]:
                async with http.get(house.url + path, headers={"X-Client-Token": "client"}) as answer:
                    told: dict[str, Any] = await answer.json()
                    return told

            async def is_gone() -> bool:
                return bool((await ask("/api/v1/workers/raw"))["state"] == "disconnected")

            await worker.register()
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            assert (await ask("/api/v1/workers/raw"))["disconnected_at"] is None
            await worker.ws.close()
            await until_async(is_gone)
            assert (await ask("/api/v1/workers/raw"))["disconnected_at"] is not None
            (reason,) = (await ask(f"/api/v1/jobs/{job.id}/explain"))["reasons"]
            assert reason["code"] == "worker_disconnected"
            assert "its lease ends at" in reason["unblock"]
            await worker.connect(frames.HelloFrame(worker.session, [offer.attempt_id]))
            await worker.hear()
            assert (await ask("/api/v1/workers/raw"))["state"] == "ready"
            (reason,) = (await ask(f"/api/v1/jobs/{job.id}/explain"))["reasons"]
            assert reason["code"] == "task_offered"

    play(main())


def test_a_cancel_that_nobody_heard_is_said_again_with_the_welcome() -> None:
    async def main() -> None:
        async with House() as house, raw(house) as worker:
            await worker.register()
            await worker.connect()
            await worker.hear()
            job = await house.submit()
            offer = await worker.hear()
            assert isinstance(offer, frames.TaskFrame)
            await worker.ws.close()
            await house.director.cancel(job.id)
            await worker.connect(frames.HelloFrame(worker.session, [offer.attempt_id]))
            welcome = await worker.hear()
            assert isinstance(welcome, frames.WelcomeFrame)
            assert welcome.stop == [offer.attempt_id]

    play(main())


def test_a_stopping_orchestrator_says_goodbye_at_once() -> None:
    async def main() -> None:
        house = House()
        async with raw(house) as worker:
            await house.open()
            await worker.register()
            await worker.connect()
            await worker.hear()
            began = asyncio.get_running_loop().time()
            closing = asyncio.create_task(house.close())
            assert await worker.closed() == 1001
            await closing
            assert asyncio.get_running_loop().time() - began < 1.5

    play(main())
