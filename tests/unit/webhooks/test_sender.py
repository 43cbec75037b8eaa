"""WebhookSender: what happened to a job is told at least once, in order, and given up in the open."""

import asyncio
import functools
import random
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from regista import MemoryStorage, StateMachineBlueprint
from regista.clock import Clock, SystemClock
from regista.config.webhooks import ClientWebhook
from regista.errors import StorageUnavailable
from regista.model import Record, RecordWrite
from regista.model.delivery import (
    DEAD_COLLECTION,
    WEBHOOK_COLLECTION,
    WebhookDelivery,
    delivery_of,
    delivery_write,
)
from regista.storage.base import shared_secret
from regista.testing.clock import Clock as ManualClock
from regista.testing.orchestrator import TestOrchestrator
from regista.webhooks import verify
from regista.webhooks.addresses import AddressPolicy
from regista.webhooks.base import DeliveryResult
from regista.webhooks.body import render_body
from regista.webhooks.registry import WebhookRegistry
from regista.webhooks.sender import PAUSES_S, WebhookSender
from tests.support import script
from tests.webhook_kit import THEN, delivery

REAL = SystemClock()
URL = "https://hooks.example.com/jobs?key=1"
BROKEN = DeliveryResult(status=503, error="answered 503")


def told(kit: TestOrchestrator) -> list[str]:
    return [letter.body["event"] for letter in kit.letterbox.letters]


def collection(kit: TestOrchestrator, name: str) -> list[WebhookDelivery]:
    return [delivery_of(item) for item in kit.call(lambda: kit.director.storage.records(name))]


def quick() -> StateMachineBlueprint:
    return script(lambda context, actions: actions.transition_to("done"), "done")


def asking(name: str = "script") -> StateMachineBlueprint:
    def start(context: Any, actions: Any) -> None:
        actions.await_human_approval("May it?", {"yes": "done", "no": "done"})

    return script(start, "done", name=name)


def broken() -> StateMachineBlueprint:
    def start(context: Any, actions: Any) -> None:
        raise LookupError("nothing there")

    return script(start, "done")


# -- what is told ------------------------------------------------------------------------------------


def test_the_end_of_a_job_is_told_signed_and_without_what_it_was_given() -> None:
    with TestOrchestrator(quick()) as kit:
        job = kit.run("script", {"secret": "of the client"}, webhook_url=URL, client="acme")
        kit.skip(1)
        (letter,) = kit.letterbox.letters
        secrets = kit.call(lambda: kit.director.webhooks.registry.secrets_of("acme"))

        assert (letter.url, letter.body["event"], letter.body["job_id"]) == (URL, "job_finished", job.id)
        assert "of the client" not in str(letter.body)
        now = float(letter.headers["webhook-timestamp"])
        raw = msgspec.json.encode(letter.body)
        assert verify(secrets[0], letter.headers, raw, now=now) == letter.body["id"]
        assert collection(kit, WEBHOOK_COLLECTION) == collection(kit, DEAD_COLLECTION) == []


def test_a_job_without_a_webhook_writes_nothing_on_the_shelf() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.run("script")
        assert collection(kit, WEBHOOK_COLLECTION) == []
        assert kit.letterbox.letters == []


def test_a_question_is_told_with_the_token_that_answers_it() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script", webhook_url=URL)
        kit.skip(1)
        (letter,) = kit.letterbox.letters
        question = letter.body["approval"]

        assert letter.body["event"] == "job_waiting_for_human"
        assert question["decisions"] == ["no", "yes"]
        assert question["token"] == kit.director.engine.approval_token(kit.get(job))
        assert question["url"] == f"/_public/webhooks/approval/{job.id}?token={question['token']}"


def test_every_way_to_settle_is_told() -> None:
    with TestOrchestrator(asking("asks"), broken()) as kit:
        cancelled = kit.submit("asks", webhook_url=URL)
        kit.skip(1)
        kit.cancel(cancelled)
        kit.skip(1)
        assert told(kit) == ["job_waiting_for_human", "job_cancelled"]

        quarantined = kit.run("script", webhook_url=URL)
        kit.skip(1)
        kit.fail(quarantined, "given up")
        kit.skip(1)
        assert told(kit)[2:] == ["job_quarantined", "job_failed"]
        assert kit.letterbox.letters[-1].body["error"] == {"code": "failed_by_hand", "message": "given up"}


def test_a_child_asks_for_itself_and_leaves_its_end_to_its_parent() -> None:
    def start(context: Any, actions: Any) -> None:
        actions.run_blueprint("asks", {}, {"success": "done"})

    with TestOrchestrator(script(start, "done"), asking("asks")) as kit:
        parent = kit.submit("script", webhook_url=URL)
        kit.skip(1)
        (letter,) = kit.letterbox.letters
        child = letter.body["job_id"]
        assert letter.body["data"]["parent_id"] == parent.id
        kit.approve(child, "yes")
        kit.skip(1)
        assert [(one.body["event"], one.body["job_id"]) for one in kit.letterbox.letters[1:]] == [
            ("job_finished", parent.id)
        ]


def test_a_power_cut_after_the_commit_loses_no_word() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.crash_at(lambda event: event.type == "job_finished", when="after")
        kit.submit("script", webhook_url=URL)
        kit.skip(5)
        assert kit.crashes == 1
        assert told(kit) == ["job_finished"]


def test_a_power_cut_before_the_commit_tells_nothing_that_was_not_so() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.crash_at(lambda event: event.type == "job_finished", when="before")
        kit.submit("script", webhook_url=URL)
        kit.skip(5)
        assert kit.crashes == 1
        assert told(kit) == ["job_finished"]


def test_what_a_client_does_not_want_to_hear_is_not_sent() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.submit("script", client="acme", webhook_url=URL)
        kit.director.webhooks.registry.replace_clients({"acme": ClientWebhook(events=("finished",))})
        kit.skip(1)
        assert told(kit) == []
        assert collection(kit, WEBHOOK_COLLECTION) == []
        kit.approve(job, "yes")
        kit.skip(1)
        assert told(kit) == ["job_finished"]


# -- trying again ------------------------------------------------------------------------------------


def test_a_receiver_that_fails_is_tried_again_later_and_later_under_the_same_id() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.letterbox.answers = [BROKEN] * 3
        kit.run("script", webhook_url=URL)
        kit.skip(1)
        (waiting,) = collection(kit, WEBHOOK_COLLECTION)
        assert (waiting.tries, waiting.status, waiting.error) == (1, 503, "answered 503")
        assert len(kit.letterbox.letters) == 1

        kit.skip(hours=1)
        assert len({letter.body["id"] for letter in kit.letterbox.letters}) == 1
        assert len(kit.letterbox.letters) == 4
        assert collection(kit, WEBHOOK_COLLECTION) == []


def test_after_the_last_try_it_is_a_dead_letter_that_says_why() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.letterbox.answers = [BROKEN] * 100
        kit.run("script", webhook_url=URL)
        kit.skip(hours=10)
        assert collection(kit, DEAD_COLLECTION) == []
        kit.skip(days=2)
        (dead,) = collection(kit, DEAD_COLLECTION)
        assert (dead.tries, dead.error) == (len(PAUSES_S) + 1, "answered 503")
        assert len(kit.letterbox.letters) == dead.tries
        assert collection(kit, WEBHOOK_COLLECTION) == []


def test_a_final_answer_is_not_argued_with() -> None:
    with TestOrchestrator(quick()) as kit:
        kit.letterbox.answers = [DeliveryResult(status=410, error="answered 410", final=True)]
        kit.run("script", webhook_url=URL)
        kit.skip(1)
        (dead,) = collection(kit, DEAD_COLLECTION)
        assert (dead.tries, dead.status) == (1, 410)


def test_a_later_word_waits_for_the_first_try_of_an_earlier_one_and_not_for_its_retries() -> None:
    with TestOrchestrator(asking()) as kit:
        kit.letterbox.answers = [BROKEN, DeliveryResult(status=200)]
        job = kit.submit("script", webhook_url=URL)
        kit.approve(job, "yes")
        kit.skip(3)
        assert told(kit) == ["job_waiting_for_human", "job_finished"]
        kit.skip(60)
        assert told(kit)[2:] == ["job_waiting_for_human"]
        first, second, again = (one.body["sequence"] for one in kit.letterbox.letters)
        assert first == again < second


async def test_a_word_behind_one_that_was_put_off_is_not_sent_before_it_nor_written_again_each_second() -> (
    None
):
    storage = await store(delivery(revision=4))
    later = THEN + timedelta(minutes=10)
    await storage.put_records(
        [delivery_write(one, later) for one in (delivery(tries=1), delivery(revision=3))]
    )
    post = Receivers()
    chore = sender(storage, post, clock=ManualClock(THEN))
    await chore.run_once(THEN)
    await chore.drain()
    assert post.asked == []
    *_, last = await storage.records(WEBHOOK_COLLECTION)
    assert last.due == later + timedelta(seconds=1)
    await storage.stop()


# -- by itself, over a store -------------------------------------------------------------------------


class Receivers:
    """Answers at once, but for hosts that hang until they are let go."""

    def __init__(self, *hanging: str) -> None:
        self.told: list[str] = []
        self.asked: list[str] = []
        self.free = asyncio.Event()
        self._hanging = hanging

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        self.asked.append(url)
        if url.startswith(self._hanging):
            await self.free.wait()
        self.told.append(url)
        return DeliveryResult(status=204)

    async def stop(self) -> None:
        return None


async def until(so: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(5):
        while not so():  # noqa: ASYNC110  # what is waited for is not ours to signal
            await asyncio.sleep(0.001)


def sender(
    storage: MemoryStorage,
    post: Any,
    concurrency: int = 32,
    clock: Clock = REAL,
    on_room: Callable[[], None] | None = None,
) -> WebhookSender:
    book = WebhookRegistry(AddressPolicy(), functools.partial(shared_secret, storage))
    return WebhookSender(
        storage,
        lambda: post,
        book,
        lambda one: render_body(one, "token"),
        clock,
        random.Random(1),
        concurrency=concurrency,
        on_room=on_room,
    )


async def store(*deliveries: WebhookDelivery) -> MemoryStorage:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    await storage.put_records([delivery_write(one, one.at) for one in deliveries])
    return storage


async def test_many_receivers_of_one_client_that_hang_do_not_hold_up_another_client() -> None:
    slow = [
        delivery(job=f"a-{number:03}", url=f"https://slow.h{number}.example.com", client="bob")
        for number in range(60)
    ]
    storage = await store(*slow, delivery(job="b", url="https://fast.example.com", client="ada"))
    post = Receivers("https://slow.")
    chore = sender(storage, post)
    await chore.run_once(SystemClock().now())
    await until(lambda: len(post.told) == 1)
    assert post.told == ["https://fast.example.com"]
    post.free.set()
    await chore.stop(5.0)
    await storage.stop()


async def test_two_senders_tell_everything_once() -> None:
    every = [delivery(job=f"job-{number:03}") for number in range(50)]
    storage = await store(*every)
    post = Receivers()
    one, two = sender(storage, post), sender(storage, post)
    while await storage.records(WEBHOOK_COLLECTION):
        now = SystemClock().now() + timedelta(seconds=1)
        await asyncio.gather(one.run_once(now), two.run_once(now))
        await asyncio.gather(one.drain(), two.drain())
        await asyncio.sleep(0.01)
    assert len(post.told) == 50
    await storage.stop()


async def test_a_receiver_that_hangs_holds_up_nobody_else() -> None:
    slow = [delivery(job=f"a-{number:03}", url="https://slow.example.com") for number in range(200)]
    fast = [
        delivery(job=f"b-{number}", url=f"https://fast-{number}.example.com", client=f"c{number % 4}")
        for number in range(20)
    ]
    storage = await store(*slow, *fast)
    post = Receivers("https://slow.")
    chore = sender(storage, post)
    for _ in range(4):  # pages of one hundred; all of the slow one's come first
        await chore.run_once(SystemClock().now())
        await asyncio.sleep(0)
    await until(lambda: len(post.told) == 20)
    await asyncio.sleep(0.01)
    assert len(post.asked) == 20 + 1
    post.free.set()
    await chore.drain()
    await chore.stop()
    await storage.stop()


async def make_quick(chore: WebhookSender, storage: MemoryStorage, at: datetime | None = None) -> None:
    """Let the sender find out that the usual receiver is quick."""
    now = at or SystemClock().now()
    await storage.put_records([delivery_write(delivery(job="0"), now)])
    await chore.run_once(now)
    await chore.drain()


async def test_a_crowd_for_a_quick_receiver_is_sent_in_one_go_in_the_order_of_its_coming() -> None:
    urls = [f"https://hooks.example.com/{number:02}" for number in range(60)]
    storage, post = await store(), Receivers()
    chore = sender(storage, post)
    await make_quick(chore, storage)
    await storage.put_records(
        [delivery_write(delivery(job=f"j-{n:02}", url=url), THEN) for n, url in enumerate(urls)]
    )
    report = await chore.run_once(SystemClock().now())
    await chore.drain()
    assert (report.done, report.run_again_in_s) == (60, None)
    assert post.told[1:] == urls
    assert await storage.records(WEBHOOK_COLLECTION) == []
    await storage.stop()


async def test_deliveries_to_a_receiver_that_becomes_slow_go_back_to_the_store() -> None:
    storage = await store()
    clock = ManualClock(THEN)

    class Slow(Receivers):
        async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
            if len(self.asked) == 1:
                clock.move(9)
            return await super().__call__(url, headers, body)

    post = Slow()
    chore = sender(storage, post, clock=clock)
    await make_quick(chore, storage, THEN)
    await storage.put_records([delivery_write(delivery(job=f"j-{number}"), THEN) for number in range(10)])
    assert (await chore.run_once(THEN)).done == 10
    await chore.drain()
    left = await storage.records(WEBHOOK_COLLECTION)
    assert len(post.told) + len(left) == 11
    assert len(left) >= 6
    dues = sorted(item.due for item in left if item.due is not None)
    assert all(clock.now() < due < clock.now() + timedelta(minutes=1) for due in dues)
    assert len(set(dues)) == len(left)

    clock.move(60)  # the receiver may have become quick
    assert (await chore.run_once(clock.now())).done
    await chore.drain()
    assert len(await storage.records(WEBHOOK_COLLECTION)) < len(left)
    await storage.stop()


async def test_hanging_receivers_of_a_client_do_not_hold_back_its_own_healthy_ones() -> None:
    """The time of a delivery to a healthy receiver does not depend on how many of the others hang."""
    hanging = [delivery(job=f"a-{n:03}", url=f"https://slow.h{n}.example.com") for n in range(300)]
    storage, post = await store(), Receivers("https://slow.")
    chore = sender(storage, post)
    await make_quick(chore, storage)
    await storage.put_records([delivery_write(one, THEN) for one in hanging])
    for _ in range(4):  # pages of one hundred
        await chore.run_once(SystemClock().now())
    assert len(post.asked) - len(post.told) == 8
    await storage.put_records([delivery_write(delivery(job=f"b-{n:02}"), THEN) for n in range(50)])
    await chore.run_once(SystemClock().now())
    await until(lambda: len(post.told) == 51)
    post.free.set()
    await chore.drain()
    await chore.stop()
    await storage.stop()


class Polite(MemoryStorage):
    """A store that lets others go first before it writes, as one does that waits for a flush."""

    async def put_records(self, writes: Sequence[RecordWrite]) -> list[bool]:
        await asyncio.sleep(0)
        return await super().put_records(writes)


class Tiring(Receivers):
    """Quick at first; after some deliveries each takes its time, though it is not called slow."""

    def __init__(self, clock: ManualClock, quick: int) -> None:
        super().__init__()
        self.ids: list[str] = []
        self._clock, self._quick = clock, quick

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        self.ids.append(headers["webhook-id"])
        if len(self.ids) > self._quick:
            self._clock.move(1.9)
        return await super().__call__(url, headers, body)


async def test_deliveries_that_wait_for_longer_than_their_lease_are_sent_once() -> None:
    clock = ManualClock(THEN)
    storage = Polite(SystemClock())
    await storage.start()
    await storage.put_records([delivery_write(delivery(job=f"a-{number:02}"), THEN) for number in range(10)])
    post = Tiring(clock, quick=10)
    chore = sender(storage, post, clock=clock)
    await chore.run_once(clock.now())
    await chore.drain()
    await storage.put_records([delivery_write(delivery(job=f"b-{number:02}"), THEN) for number in range(60)])
    async with asyncio.timeout(5):
        while await storage.records(WEBHOOK_COLLECTION):
            await chore.run_once(clock.now())
            clock.move(0.1)
            await asyncio.sleep(0)
    assert len(post.ids) == len(set(post.ids)) == 70
    await chore.stop()
    await storage.stop()


async def test_a_claim_moves_the_due_time_behind_the_lease_and_is_not_made_twice() -> None:
    storage = await store(delivery())
    post = Receivers("https://")
    chore = sender(storage, post)
    now = SystemClock().now()
    assert (await chore.run_once(now)).done == 1
    assert (await chore.run_once(now)).done == 0
    (item,) = await storage.records(WEBHOOK_COLLECTION)
    assert (item.revision, item.due) == (2, now + timedelta(seconds=22))
    post.free.set()
    await chore.drain()
    assert len(post.told) == 1
    assert await storage.records(WEBHOOK_COLLECTION) == []
    await storage.stop()


class Hesitant(MemoryStorage):
    """A store that has looked, and tells later, as one does that waits for a flush."""

    may_tell: asyncio.Event | None = None

    async def due_records(self, collection: str, now: datetime, limit: int) -> list[Record]:
        found = await super().due_records(collection, now, limit)
        if self.may_tell is not None:
            await self.may_tell.wait()
        return found


class Counting(MemoryStorage):
    """A store that counts in how many steps it is asked what lies behind some keys."""

    looks = 0
    _looking = False

    async def records(self, collection: str, **options: Any) -> list[Record]:
        if options.get("limit") == 1 and not self._looking:
            self.looks, self._looking = self.looks + 1, True
            asyncio.get_running_loop().call_soon(setattr, self, "_looking", False)
        return await super().records(collection, **options)


async def test_one_round_trip_asks_what_lies_before_all_that_are_due() -> None:
    storage = Counting(SystemClock())
    await storage.start()
    words = [delivery(job=f"job-{n}", url=f"https://h{n}.example.com", client=f"c{n}") for n in range(20)]
    await storage.put_records([delivery_write(one, THEN) for one in words])
    post = Receivers("none")
    chore = sender(storage, post)

    report = await chore.run_once(SystemClock().now())
    await chore.drain()

    assert (report.done, len(post.told), storage.looks) == (20, 20, 1)
    await storage.stop()


async def test_what_was_sent_while_another_instance_read_it_is_not_sent_again() -> None:
    storage = Hesitant(SystemClock())
    await storage.start()
    await storage.put_records([delivery_write(delivery(), THEN)])
    post = Receivers()
    chore, other = sender(storage, post), sender(storage, post)
    held = storage.may_tell = asyncio.Event()
    look = asyncio.create_task(other.run_once(SystemClock().now()))
    await asyncio.sleep(0)
    storage.may_tell = None
    assert (await chore.run_once(SystemClock().now())).done == 1
    await chore.drain()
    held.set()
    assert (await look).done == 0
    assert len(post.told) == 1
    await storage.stop()


async def test_what_was_taken_on_by_a_sender_that_died_is_due_again_after_its_lease() -> None:
    storage = await store(delivery())
    hung = sender(storage, Receivers("https://"))
    await hung.run_once(SystemClock().now())
    await hung.stop()

    post = Receivers()
    heir = sender(storage, post)
    assert (await heir.run_once(SystemClock().now())).done == 0
    assert (await heir.run_once(SystemClock().now() + timedelta(seconds=23))).done == 1
    await heir.drain()
    assert len(post.told) == 1
    await storage.stop()


async def test_no_more_are_under_way_than_there_is_room_for_and_the_end_of_one_asks_for_the_next() -> None:
    storage = await store(
        *[delivery(job=f"j-{n}", url=f"https://h{n}.example.com", client=f"c{n}") for n in range(5)]
    )
    post = Receivers("https://")
    asked = asyncio.Event()
    chore = sender(storage, post, concurrency=2, on_room=asked.set)
    await chore.run_once(SystemClock().now())
    await until(lambda: len(post.asked) == 2)
    await asyncio.sleep(0.01)
    assert len(post.asked) == 2
    post.free.set()
    async with asyncio.timeout(5):
        await asked.wait()
    await chore.stop()
    await storage.stop()


async def test_a_record_that_nobody_can_read_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    storage = await store(delivery(job="z"))
    now = SystemClock().now()
    await storage.put_records([RecordWrite(WEBHOOK_COLLECTION, "a-000001", b"\xc1", now)])
    post = Receivers()
    chore = sender(storage, post)
    await chore.run_once(now + timedelta(seconds=1))
    await chore.drain()
    assert len(post.told) == 1
    assert await storage.records(WEBHOOK_COLLECTION) == []
    assert [item.value for item in await storage.records(DEAD_COLLECTION)] == [b"\xc1"]
    assert "a-000001" in caplog.text
    await storage.stop()


async def test_a_record_that_nobody_can_read_does_not_stop_the_later_words_of_its_job() -> None:
    storage = await store(delivery(job="a"), delivery(job="b", url="https://b.example.com"))
    now = SystemClock().now()
    # Not due yet, so it still lies before the other when that one's turn comes.
    await storage.put_records(
        [RecordWrite(WEBHOOK_COLLECTION, "a-000001", b"\xc1", now + timedelta(hours=1))]
    )
    post = Receivers()
    chore = sender(storage, post)
    await chore.run_once(now + timedelta(seconds=1))
    await chore.drain()
    assert len(post.told) == 2
    await storage.stop()


class Moody(MemoryStorage):
    """A store that is away now and then, as a Redis may be."""

    away = False

    async def put_records(self, writes: Any) -> list[bool]:
        if self.away:
            raise StorageUnavailable("away")
        return await super().put_records(writes)


async def test_a_store_that_is_away_after_the_word_was_heard_means_that_it_is_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Moody(SystemClock())
    await storage.start()
    await shared_secret(storage, "webhook")
    await storage.put_records([delivery_write(delivery(), THEN)])
    post = Receivers("https://")
    chore = sender(storage, post)
    now = SystemClock().now()
    await chore.run_once(now)
    await until(lambda: len(post.asked) == 1)
    storage.away = True
    post.free.set()
    await chore.drain()
    assert len(post.told) == 1
    with pytest.raises(StorageUnavailable):  # the loop of all chores waits, and runs it again
        await chore.run_once(now + timedelta(seconds=30))
    storage.away = False
    assert (await chore.run_once(now + timedelta(seconds=30))).done == 1
    await chore.drain()
    assert len(post.told) == 2
    assert await storage.records(WEBHOOK_COLLECTION) == []
    assert "Traceback" not in caplog.text
    await storage.stop()


async def test_a_store_that_is_away_when_a_slow_receiver_is_put_off_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage, clock = Moody(SystemClock()), ManualClock(THEN)
    await storage.start()

    class SlowAndAway(Receivers):
        async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
            if self.asked:
                clock.move(9)
                storage.away = True
            return await super().__call__(url, headers, body)

    post = SlowAndAway()
    chore = sender(storage, post, clock=clock)
    await make_quick(chore, storage, THEN)
    await storage.put_records([delivery_write(delivery(job=f"j-{number}"), THEN) for number in range(10)])
    await chore.run_once(THEN)
    await chore.drain()
    storage.away = False
    assert len(await storage.records(WEBHOOK_COLLECTION)) == 10
    assert "Traceback" not in caplog.text

    clock.move(60)  # their lease is over
    assert (await chore.run_once(clock.now())).done
    storage.away = False
    await chore.drain()
    await storage.stop()


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_ten_thousand_that_wait_for_a_dead_receiver_take_no_memory_of_the_sender() -> None:
    storage = await store(*[delivery(job=f"job-{number:05}") for number in range(10_000)])
    post = Receivers("https://")
    chore = sender(storage, post)
    await chore.run_once(SystemClock().now())
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    report = await chore.run_once(SystemClock().now())
    runs = 1
    while report.run_again_in_s == 0:
        report = await chore.run_once(SystemClock().now())
        runs += 1
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert runs >= 99
    # Every value was written again, once; that is all there is, and nothing of it is the sender's.
    values = sum(len(item.value) + 800 for item in await storage.records(WEBHOOK_COLLECTION, limit=10_000))
    assert after - before < values + 1_000_000
    assert len(post.asked) == 1  # nobody knows yet how long it takes
    spread = [item.due for item in await storage.records(WEBHOOK_COLLECTION, limit=10_000) if item.due]
    assert len(set(spread)) > 5000  # they do not come back all at once
    await chore.stop()
    await storage.stop()


async def test_an_error_of_our_own_is_a_try_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Receivers):
        async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
            raise RuntimeError("a bug")

    storage = await store(delivery())
    chore = sender(storage, Broken())
    await chore.run_once(SystemClock().now())
    await chore.drain()
    (item,) = await storage.records(WEBHOOK_COLLECTION)
    assert (delivery_of(item).tries, "a bug" in caplog.text) == (1, True)
    await storage.stop()


async def test_what_is_being_told_at_the_stop_gets_a_moment_to_be_heard() -> None:
    storage = await store(delivery())
    post = Receivers("https://")
    chore = sender(storage, post)
    await chore.run_once(SystemClock().now())
    asyncio.get_running_loop().call_later(0.05, post.free.set)
    await chore.stop(2.0)
    assert len(post.told) == 1
    assert await storage.records(WEBHOOK_COLLECTION) == []
    await storage.stop()


async def test_what_somebody_else_took_on_meanwhile_is_no_dead_letter() -> None:
    storage = await store(delivery())

    class Slow(Receivers):
        async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
            (item,) = await storage.records(WEBHOOK_COLLECTION)
            await storage.put_records([delivery_write(delivery_of(item), THEN, item.revision)])
            return DeliveryResult(status=410, error="answered 410", final=True)

    chore = sender(storage, Slow())
    await chore.run_once(SystemClock().now())
    await chore.drain()
    assert await storage.records(DEAD_COLLECTION) == []
    assert len(await storage.records(WEBHOOK_COLLECTION)) == 1
    await storage.stop()
