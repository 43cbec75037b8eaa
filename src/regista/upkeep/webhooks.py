"""WebhookSender: tells receivers what happened to jobs, at least once, and gives up in the open."""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import heappop, heappush

from msgspec.structs import replace

from ..clock import Clock
from ..errors import StorageOutcomeUnknown
from ..maintenance.chore import ChoreResult
from ..model import Record, RecordWrite
from ..model.delivery import DEAD_COLLECTION, WEBHOOK_COLLECTION, WebhookDelivery, dead_write, delivery_write
from ..storage.base import SharedState
from ..webhooks.base import DeliveryResult, DeliveryTransport
from ..webhooks.registry import WebhookRegistry
from ..webhooks.signature import sign
from .errands import SPARE_S, Errand, Hands, read
from .lines import GO, Lines, Turn

log = logging.getLogger("regista.webhooks")

#: Seconds before the second try, the third, …: ten tries in some sixteen hours.
PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0)
#: How far chance may stretch or shorten a pause: a crowd that failed together must not come back together.
_JITTER = 0.2
#: Deliveries that are looked at in one go.
_PAGE = 100


class WebhookSender:
    """Deliveries lie on a shelf, written with the commits that they tell of; whatever is due is sent.

    A delivery is taken on for a while (`Hands`): of two senders one gets it, and when that one dies it is due again. Sent
    and killed before the shelf knows means sent twice, under the same id. A receiver has a line of its own (`Lines`), a
    client a part of the room; what would stand there for long gets a later due time, so nobody else waits behind it
    and no more than a few gather in memory.
    """

    name = "webhooks"
    #: Every instance sends: the shelf says who sends what.
    needs_leader = False

    def __init__(
        self,
        shelves: SharedState,
        open_transport: Callable[[], DeliveryTransport],
        book: WebhookRegistry,
        render: Callable[[WebhookDelivery], bytes],
        clock: Clock,
        chance: random.Random,
        *,
        interval_s: float = 2.0,
        concurrency: int = 32,
        timeout_s: float = 10.0,
        alone: bool = False,
        on_attempt: Callable[[DeliveryResult], None] | None = None,
    ) -> None:
        """`alone`: nobody else sends what lies on these shelves. `on_attempt` is called with each result."""
        self.interval_s = interval_s
        self._shelves = shelves
        self._open_transport = open_transport
        #: Opened by the first delivery.
        self.transport: DeliveryTransport | None = None
        self.book = book
        self._render = render
        self._clock = clock
        self._chance = chance
        # A try is up to twice the time-out: over a connection that was left open, and over a new one.
        self._on_attempt = on_attempt
        self._hands = Hands(shelves, clock, 2 * timeout_s + SPARE_S, alone)
        self._lines: Lines[Errand] = Lines(concurrency)
        self._sending: set[asyncio.Task[None]] = set()
        #: When something is due that was put off; what others put off is found by the interval.
        self._dues: list[datetime] = []
        #: Something was due that had to wait for one of ours.
        self._more = False
        #: Called when there is room again for what is due.
        self.on_room: Callable[[], None] = _nothing

    async def run_once(self, now: datetime) -> ChoreResult:
        """Take on what is due, as far as there is room. Returns before it was told; `drain` waits for that."""
        page = _PAGE + self._hands.full()
        ripe = await self._shelves.due_records(WEBHOOK_COLLECTION, now, page)
        writes: list[RecordWrite] = []
        chosen: list[tuple[Errand, Turn]] = []
        try:
            await self._choose(ripe, now, chosen, writes)
            taken = await self._hands.take([errand for errand, _ in chosen], now) if chosen else ()
        except BaseException:
            for errand, turn in chosen:
                self._step_back(errand, turn)
            raise
        for (errand, turn), mine in zip(chosen, taken, strict=True):
            if mine:
                self._set_out(errand, turn)
            else:
                self._step_back(errand, turn)
        if writes:
            await self._shelves.put_records(writes)
            self._expect(writes)
        run_again_in_s = 0.0 if len(ripe) == page and not self._more else self._next_s(now)
        return ChoreResult(sum(taken), run_again_in_s)

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
        if self.transport is not None:
            await self.transport.stop()

    def _expect(self, writes: list[RecordWrite]) -> None:
        """What we put off is due then. Beyond so many the interval is good enough."""
        for write in writes:
            if write.due is not None and len(self._dues) < _PAGE * 10:
                heappush(self._dues, write.due)

    def _next_s(self, now: datetime) -> float | None:
        while self._dues and self._dues[0] <= now:
            heappop(self._dues)
        return (self._dues[0] - now).total_seconds() if self._dues else None

    # -- choosing --------------------------------------------------------------------------------

    async def _choose(
        self, ripe: list[Record], now: datetime, chosen: list[tuple[Errand, Turn]], writes: list[RecordWrite]
    ) -> None:
        """Add what may go or wait for its turn to `chosen`, and what must be written about others to `writes`."""
        self._more = False
        errands = self._errands(ripe, writes)
        behind = await self._hands.behind([errand.delivery for errand in errands], now)
        for errand, look_again in zip(errands, behind, strict=True):
            if self._lines.full:
                self._more = True
                return
            client, revision = errand.delivery.job.client, errand.item.revision
            turn = look_again or self._lines.turn(errand.receiver, now, client)
            if isinstance(turn, Turn):
                chosen.append((errand, turn))
            else:
                writes.append(errand.moved(turn, revision))

    def _errands(self, ripe: list[Record], writes: list[RecordWrite]) -> list[Errand]:
        """What there is to tell. What nobody can read or wants to hear is written off."""
        errands = []
        for item in ripe:
            if self._hands.has(item.key):
                continue
            if self._lines.full:
                self._more = True
                break
            delivery = read(item, writes)
            if delivery is None:
                continue
            if self.book.wants(delivery.job.client, delivery.event):
                errands.append(self._hands.errand(delivery, item))
            else:
                writes.append(RecordWrite(item.collection, item.key, None, None, item.revision))
        return errands

    def _set_out(self, errand: Errand, turn: Turn) -> None:
        if turn is GO or self._lines.enter(errand.receiver, errand.delivery.job.client, errand):
            self._spawn(errand)

    def _step_back(self, errand: Errand, turn: Turn) -> None:
        """It is not ours: nobody goes, so nobody stands in the line."""
        client = errand.delivery.job.client
        if turn is GO:
            for other in self._lines.left(errand.receiver, None, client):
                self._spawn(other)
        else:
            self._lines.give_up(errand.receiver, client)

    # -- telling ---------------------------------------------------------------------------------

    def _spawn(self, errand: Errand) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(errand), name="webhook")
        self._sending.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        if self._more and not task.cancelled():
            self._more = False
            self.on_room()

    async def _carry(self, errand: Errand) -> None:
        """Tell one, and then those who stand behind it in the same line."""
        while True:
            took_s = await self._send(errand)
            going = self._lines.left(errand.receiver, took_s, errand.delivery.job.client)
            away = self._lines.sent_away(errand.receiver, self._clock.now())
            if away:
                await self._put_off(away)
            if not going:
                return
            errand, *others = going
            for other in others:
                self._spawn(other)

    async def _put_off(self, away: list[tuple[Errand, datetime]]) -> None:
        """Their receiver has become slow: they wait on the shelf, where nobody stands behind them."""
        away = [(errand, due) for errand, due in away if self._hands.owns(errand)]
        writes = [errand.moved(due, errand.revision) for errand, due in away]
        try:
            if writes:
                await self._shelves.put_records(writes)
        except StorageOutcomeUnknown:
            return  # it says so itself; they are due again when their lease is over
        except Exception:
            log.exception("deliveries were not put off; they are due again when their lease is over")
            return
        self._expect(writes)
        for errand, _ in away:
            self._hands.let_go(errand.item.key)

    async def _send(self, errand: Errand) -> float | None:
        """Tell one and write down how it went; returns the seconds that its receiver took, where that is known."""
        took_s = None
        try:
            ours = errand if self._hands.has_time(errand) else await self._hands.renew(errand)
            if ours is None:
                return None  # it stood in the line for too long, and was taken on anew meanwhile
            began = self._clock.elapsed()
            answer = await self._tell(ours.delivery)
            if self._on_attempt is not None:
                self._on_attempt(answer)
            took_s = self._clock.elapsed() - began
            await self._note(ours, answer)
            self._hands.let_go(ours.item.key)
        except StorageOutcomeUnknown:
            pass  # it says so itself; the delivery is due again when its lease is over
        except Exception:
            told = {"action": "webhook_failed", "job_id": errand.delivery.job.id}
            log.exception("delivery %s was not noted; it is sent again", errand.item.key, extra=told)
        return took_s

    async def _tell(self, delivery: WebhookDelivery) -> DeliveryResult:
        try:
            body = self._render(delivery)
            seconds = int(self._clock.now().timestamp())
            secrets = await self.book.secrets_of(delivery.job.client)
            self.transport = self.transport or self._open_transport()
            return await self.transport(delivery.url, sign(secrets, delivery.id, seconds, body), body)
        except StorageOutcomeUnknown:
            raise
        except Exception:  # a try like any other: it must not be repeated for ever
            told = {"action": "webhook_failed", "job_id": delivery.job.id}
            log.exception("delivery %s could not be sent", delivery.id, extra=told)
            return DeliveryResult(error="an error of the orchestrator; its log says more")

    async def _note(self, errand: Errand, answer: DeliveryResult) -> None:
        """Write down how it went: forget it, try again later, or give up."""
        if answer.ok:
            if log.isEnabledFor(logging.DEBUG):
                told = _words("webhook_sent", errand)
                log.debug("told %s of %s", errand.receiver, errand.delivery.id, extra=told)
            await self._shelves.put_records([errand.removed()])
            return
        told, now, delivery = _words("webhook_not_heard", errand), self._clock.now(), errand.delivery
        tried = replace(
            delivery, tries=delivery.tries + 1, tried_at=now, status=answer.status, error=answer.error
        )
        if answer.final or tried.tries > len(PAUSES_S):
            log.error("gave up to tell %s: %s", errand.receiver, answer.error, extra=told)
            # Into the one before out of the other: a crash in between repeats it, and loses nothing.
            _, mine = await self._shelves.put_records([dead_write(tried), errand.removed()])
            if not mine:  # somebody else has taken it on meanwhile, so it is not dead
                await self._shelves.put_records([RecordWrite(DEAD_COLLECTION, delivery.id, None)])
            return
        log.warning("%s did not hear: %s", errand.receiver, answer.error, extra=told)
        write = delivery_write(tried, now + self._pause(tried.tries, answer), errand.revision)
        await self._shelves.put_records([write])
        self._expect([write])

    def _pause(self, tries: int, answer: DeliveryResult) -> timedelta:
        pause_s = PAUSES_S[tries - 1] * (1 + _JITTER * (2 * self._chance.random() - 1))
        return timedelta(seconds=max(pause_s, answer.retry_after_s or 0.0))


def _words(action: str, errand: Errand) -> dict[str, str]:
    """What a line in the log says about it."""
    return {
        "action": action,
        "delivery_id": errand.delivery.id,
        "job_id": errand.delivery.job.id,
        "receiver": errand.receiver,
    }


def _nothing() -> None:
    return None
