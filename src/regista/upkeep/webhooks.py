"""WebhookSender: tells receivers what happened to jobs, at least once, and gives up in the open."""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import heappop, heappush
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..clock import Clock, later
from ..errors import StorageAway
from ..model import Item, ItemWrite
from ..model.delivery import (
    DEAD_SHELF,
    DEAD_TTL_S,
    WEBHOOK_SHELF,
    Delivery,
    dead_write,
    delivery_write,
    readable,
)
from ..storage.base import Shelves
from ..webhooks.base import Answer, Post
from ..webhooks.book import Book
from ..webhooks.signature import sign
from .lines import Lines
from .loop import Report

log = logging.getLogger("regista.webhooks")

#: Seconds before the second try, the third, …: ten tries in some sixteen hours.
PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0)
#: How far chance may stretch or shorten a pause: a crowd that failed together must not come back together.
_JITTER = 0.2
#: Deliveries that are looked at in one go.
_PAGE = 100
#: Seconds for which a later word of a job waits before it looks again whether the one before it was tried.
_BEHIND_S = 1.0
#: Seconds beyond twice the time-out after which a delivery that somebody took on is anybody's again.
_MARGIN_S = 2.0


class WebhookSender:
    """Deliveries lie on a shelf, written with the commits that they tell of; whatever is due is sent.

    A delivery is taken on by moving its due time behind the time-out, fenced by its revision: of two senders one gets
    it, and when that one dies it is due again. Sent and killed before the shelf knows means sent twice, under the same
    id. A receiver that is slow or dead has a line of its own (`Lines`), a client a part of the room; what finds its
    own full gets a later due time, so nobody else waits behind it and nothing gathers in memory.
    """

    name = "webhooks"
    #: Every instance sends: the shelf says who sends what.
    needs_leader = False

    def __init__(
        self,
        shelves: Shelves,
        post: Post,
        book: Book,
        render: Callable[[Delivery], bytes],
        clock: Clock,
        chance: random.Random,
        *,
        interval_s: float = 2.0,
        concurrency: int = 32,
        timeout_s: float = 10.0,
    ) -> None:
        self.interval_s = interval_s
        self._shelves = shelves
        self.post = post
        self.book = book
        self._render = render
        self._clock = clock
        self._chance = chance
        self._concurrency = concurrency
        self._lease_s = 2 * timeout_s + _MARGIN_S
        self._lines = Lines(concurrency)
        self._sending: set[asyncio.Task[None]] = set()
        #: When something is due that was put off; what others put off is found by the interval.
        self._dues: list[datetime] = []
        #: Something was due that had to wait for one of ours.
        self._more = False
        #: Called when there is room again for what is due.
        self.on_room: Callable[[], None] = _nothing

    async def run_once(self, now: datetime) -> Report:
        """Take on what is due, as far as there is room. Returns before it was told; `drain` waits for that."""
        ripe = await self._shelves.ripe(WEBHOOK_SHELF, now, _PAGE)
        writes: list[ItemWrite] = []
        chosen: list[tuple[Delivery, Item]] = []
        try:
            await self._choose(ripe, now, chosen, writes)
            sent = await self._take_on(chosen, now)
        except BaseException:
            for delivery, _ in chosen:  # nobody goes, so nobody stands in the line
                self._left(delivery, None)
            raise
        if writes:
            await self._shelves.put(writes)
            self._expect(*(write.due for write in writes if write.due is not None))
        if len(ripe) == _PAGE and not self._more:
            return Report(done=sent, again_s=0.0)
        return Report(done=sent, again_s=self._next_s(now))

    async def drain(self) -> None:
        """Return when everything that was taken on has been told, or was not heard."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Let what is being sent come to its end, and break it off after that: it is due again when its lease is over.

        Twice is fine.
        """
        if self._sending and grace_s > 0:
            await asyncio.wait(self._sending, timeout=grace_s)
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await self.post.stop()

    def _expect(self, *dues: datetime) -> None:
        """Something of ours is due then. Beyond so many the interval is good enough."""
        for due in dues:
            if len(self._dues) < _PAGE * 10:
                heappush(self._dues, due)

    def _next_s(self, now: datetime) -> float | None:
        while self._dues and self._dues[0] <= now:
            heappop(self._dues)
        return (self._dues[0] - now).total_seconds() if self._dues else None

    # -- choosing --------------------------------------------------------------------------------

    async def _choose(
        self,
        ripe: list[Item],
        now: datetime,
        chosen: list[tuple[Delivery, Item]],
        writes: list[ItemWrite],
    ) -> None:
        self._more = False
        for item in ripe:
            if len(self._sending) + len(chosen) >= self._concurrency:
                self._more = True
                return
            delivery = _read(item, writes)
            if delivery is not None and await self._may_go(delivery, item, now, writes):
                chosen.append((delivery, item))

    async def _may_go(self, delivery: Delivery, item: Item, now: datetime, writes: list[ItemWrite]) -> bool:
        """It is this one's turn. If not, what must be written about it is added to `writes`."""
        if not self.book.wants(delivery.job.client, delivery.event):
            writes.append(ItemWrite(item.shelf, item.key, None, None, item.revision))
            return False
        if await self._is_behind(delivery):
            writes.append(delivery_write(delivery, later(now, _BEHIND_S), item.revision))
            return False
        turn = self._lines.turn(_receiver(delivery.url), now, delivery.job.client)
        if turn is not None:
            writes.append(delivery_write(delivery, turn, item.revision))
            return False
        return True

    async def _is_behind(self, delivery: Delivery) -> bool:
        """An earlier word about the same job has not been tried yet. Once it was, nobody waits for its retries."""
        for item in await self._shelves.items(WEBHOOK_SHELF, f"{delivery.job.id}-", 1):
            first = readable(item)
            if first is None:  # it is put aside when it is its turn, and nobody waits for it
                return False
            return first.job.id == delivery.job.id and first.id < delivery.id and first.tries == 0
        return False

    async def _take_on(self, chosen: list[tuple[Delivery, Item]], now: datetime) -> int:
        if not chosen:
            return 0
        due = later(now, self._lease_s)
        taken = await self._shelves.put(
            [delivery_write(delivery, due, item.revision) for delivery, item in chosen]
        )
        for (delivery, item), mine in zip(chosen, taken, strict=True):
            if mine:
                self._spawn(delivery, item.revision + 1)
            else:
                self._left(delivery, None)
        return sum(taken)

    def _left(self, delivery: Delivery, took_s: float | None) -> None:
        self._lines.left(_receiver(delivery.url), took_s, delivery.job.client)

    # -- telling ---------------------------------------------------------------------------------

    def _spawn(self, delivery: Delivery, revision: int) -> None:
        task = asyncio.get_running_loop().create_task(
            self._send(delivery, revision), name=f"webhook-{delivery.id}"
        )
        self._sending.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        if self._more and not task.cancelled():
            self._more = False
            self.on_room()

    async def _send(self, delivery: Delivery, revision: int) -> None:
        began, took_s = self._clock.elapsed(), None
        try:
            answer = await self._tell(delivery)
            took_s = self._clock.elapsed() - began
            await self._note(delivery, answer, revision)
        except StorageAway:
            pass  # it says so itself; the delivery is due again when its lease is over
        except Exception:
            told = {"action": "webhook_failed", "job_id": delivery.job.id}
            log.exception("delivery %s was not noted; it is sent again", delivery.id, extra=told)
        finally:
            self._left(delivery, took_s)

    async def _tell(self, delivery: Delivery) -> Answer:
        try:
            body = self._render(delivery)
            seconds = int(self._clock.now().timestamp())
            secrets = await self.book.secrets_of(delivery.job.client)
            return await self.post(delivery.url, sign(secrets, delivery.id, seconds, body), body)
        except StorageAway:
            raise
        except Exception:  # a try like any other: it must not be repeated for ever
            told = {"action": "webhook_failed", "job_id": delivery.job.id}
            log.exception("delivery %s could not be sent", delivery.id, extra=told)
            return Answer(error="an error of the orchestrator; its log says more")

    async def _note(self, delivery: Delivery, answer: Answer, revision: int) -> None:
        """Write down how it went: forget it, try again later, or give up."""
        told = {
            "action": "webhook_sent" if answer.ok else "webhook_not_heard",
            "delivery_id": delivery.id,
            "job_id": delivery.job.id,
            "receiver": _receiver(delivery.url),
        }
        if answer.ok:
            log.debug("told %s of %s", told["receiver"], delivery.id, extra=told)
            await self._shelves.put([ItemWrite(WEBHOOK_SHELF, delivery.id, None, None, revision)])
            return
        now = self._clock.now()
        tried = replace(
            delivery, tries=delivery.tries + 1, tried_at=now, status=answer.status, error=answer.error
        )
        if answer.final or tried.tries > len(PAUSES_S):
            log.error("gave up to tell %s: %s", told["receiver"], answer.error, extra=told)
            # Into the one before out of the other: a crash in between repeats it, and loses nothing.
            out = ItemWrite(WEBHOOK_SHELF, delivery.id, None, None, revision)
            _, mine = await self._shelves.put([dead_write(tried), out])
            if not mine:  # somebody else has taken it on meanwhile, so it is not dead
                await self._shelves.put([ItemWrite(DEAD_SHELF, delivery.id, None)])
            return
        due = now + self._pause(tried.tries, answer)
        log.warning("%s did not hear: %s", told["receiver"], answer.error, extra=told)
        await self._shelves.put([delivery_write(tried, due, revision)])
        self._expect(due)

    def _pause(self, tries: int, answer: Answer) -> timedelta:
        pause_s = PAUSES_S[tries - 1] * (1 + _JITTER * (2 * self._chance.random() - 1))
        return timedelta(seconds=max(pause_s, answer.retry_after_s or 0.0))


def _read(item: Item, writes: list[ItemWrite]) -> Delivery | None:
    """The delivery; one that nobody can read is put among the dead ones: it must not keep all others waiting."""
    delivery = readable(item)
    if delivery is None:
        told = {"action": "webhook_unreadable", "delivery_id": item.key}
        log.error("delivery %s cannot be read; it lies among the dead ones now", item.key, extra=told)
        writes.append(ItemWrite(DEAD_SHELF, item.key, item.value, ttl_s=DEAD_TTL_S))
        writes.append(ItemWrite(item.shelf, item.key, None, None, item.revision))
    return delivery


def _receiver(url: str) -> str:
    """Who is told, without the path and whatever secrets it has: scheme, host and port."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        return "an unreadable URL"


def _nothing() -> None:
    return None
