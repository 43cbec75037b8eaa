"""WebhookSender: sends deliveries to receivers, each at least once, and gives up visibly."""

import asyncio
import functools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from heapq import heappop, heappush

from msgspec.structs import replace

from ..clock import Clock
from ..config import Config
from ..errors import StorageOutcomeUnknown
from ..maintenance.chore import ChoreResult
from ..model import AwaitHuman, Job
from ..model.delivery import WebhookDelivery
from ..storage.base import SharedState, StorageBackend, shared_secret
from .addresses import AddressPolicy
from .base import DeliveryResult, DeliveryTransport
from .body import render_body
from .claims import ClaimedDelivery, DeliveryClaims
from .limits import SLOW_S, ReceiverLimits
from .registry import WebhookRegistry
from .signature import sign

log = logging.getLogger("regista.webhooks")

#: Seconds before the second attempt, the third, …: ten attempts in some sixteen hours.
PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0)
#: How far a pause is randomly shortened or stretched, so that retries do not synchronise.
_JITTER = 0.2
#: Deliveries that are read at once.
_PAGE = 100
#: Deliveries to one quick receiver that are claimed together and sent one after the other.
_BATCH = 64
#: Times of due deliveries that are remembered; the interval finds the others.
_MAX_DUES = 1000

#: Deliveries of one client to one receiver, in the order in which they are sent.
_Batch = deque[ClaimedDelivery]


class WebhookSender:
    """A chore that sends what is due. Deliveries are written by the commits whose events they carry.

    It claims a delivery (`DeliveryClaims`) and sends it in a task, within the limits of its receiver and its client
    (`ReceiverLimits`). A delivery without a free slot gets a later due time: it waits in the store, not in memory. An
    instance that dies between sending a delivery and storing the result leaves it to be sent again, with the same id.
    """

    name = "webhooks"
    #: Every instance sends: claims say which instance sends what.
    needs_leader = False

    def __init__(
        self,
        records: SharedState,
        open_transport: Callable[[], DeliveryTransport],
        registry: WebhookRegistry,
        render: Callable[[WebhookDelivery], bytes],
        clock: Clock,
        chance: random.Random,
        *,
        interval_s: float = 2.0,
        concurrency: int = 32,
        timeout_s: float = 10.0,
        on_attempt: Callable[[DeliveryResult], None] | None = None,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        """`on_attempt` is called with each result, `on_room` when a slot becomes free for deliveries that are due."""
        self.interval_s = interval_s
        self.registry = registry
        self._open_transport = open_transport
        #: Opened by the first delivery.
        self.transport: DeliveryTransport | None = None
        self._render = render
        self._clock = clock
        self._chance = chance
        self._on_attempt = on_attempt
        self._on_room = on_room
        # An attempt takes up to twice the time-out: over a connection that was kept open, and over a new one.
        self._claims = DeliveryClaims(records, clock, 2 * timeout_s)
        self._limits = ReceiverLimits(concurrency, clock.elapsed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        #: When deliveries are due that this instance put off.
        self._dues: list[datetime] = []
        #: Something was due for which no slot was free.
        self._more = False

    async def run_once(self, now: datetime) -> ChoreResult:
        """Claim what is due, as far as there are slots. Returns before it is sent; `drain` waits for that."""
        due, is_page_full = await self._claims.due(now, _PAGE)
        await self._claims.drop([each for each in due if not self._is_wanted(each)])
        self._more = False
        batches, put_off = self._admit([each for each in due if self._is_wanted(each)], now)
        try:
            chosen = [each for batch in batches for each in batch]
            claimed = await self._claims.claim(chosen, now)
        except BaseException:
            for batch in batches:
                self._release(batch[0])
            raise
        mine = {each.record.key for each, is_mine in zip(chosen, claimed, strict=True) if is_mine}
        for batch in batches:
            self._start(batch, mine)
        await self._claims.put_off(put_off, claimed=False)
        self._expect(due for _, due in put_off)
        run_again_in_s = 0.0 if is_page_full and not self._more else self._next_due_in_s(now)
        return ChoreResult(len(mine), run_again_in_s)

    async def drain(self) -> None:
        """Return when all that was claimed has been attempted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Let attempts end within the grace, then break them off: they are due again when their lease is over.

        Twice is fine.
        """
        self._stopping = True
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stopping = False
        if self.transport is not None:
            await self.transport.stop()

    # -- choosing --------------------------------------------------------------------------------

    def _is_wanted(self, due: ClaimedDelivery) -> bool:
        return self.registry.wants(due.delivery.job.client, due.delivery.event)

    def _admit(
        self, due: list[ClaimedDelivery], now: datetime
    ) -> tuple[list[_Batch], list[tuple[ClaimedDelivery, datetime]]]:
        """What to claim, in batches that have a slot each; and what to put off, until when."""
        batches: dict[tuple[str, str], _Batch] = {}
        put_off = []
        for each in due:
            key = _key(each)
            batch = batches.get(key)
            if batch is not None and len(batch) < _BATCH and self._limits.is_quick(*key):
                batch.append(each)
            elif self._limits.full:
                self._more = True
                break
            elif batch is None and self._limits.try_acquire(*key):
                batches[key] = deque([each])
            else:
                put_off.append((each, now + timedelta(seconds=self._limits.retry_in_s(*key))))
        return list(batches.values()), put_off

    def _start(self, batch: _Batch, mine: set[str]) -> None:
        """Send those of a batch that are claimed, in as many tasks as the receiver has slots."""
        first = batch[0]
        for _ in range(len(batch)):
            each = batch.popleft()
            if each.record.key in mine:
                batch.append(each)
        if not batch:
            self._release(first)
            return
        self._spawn(batch, first)
        for _ in range(len(batch) - 1):
            if not self._limits.try_acquire(*_key(first)):
                break
            self._spawn(batch, first)

    def _release(self, claimed: ClaimedDelivery) -> None:
        self._limits.release(*_key(claimed))

    def _expect(self, dues: Iterable[datetime]) -> None:
        for due in dues:
            if len(self._dues) < _MAX_DUES:
                heappush(self._dues, due)

    def _next_due_in_s(self, now: datetime) -> float | None:
        while self._dues and self._dues[0] <= now:
            heappop(self._dues)
        return (self._dues[0] - now).total_seconds() if self._dues else None

    # -- sending ---------------------------------------------------------------------------------

    def _spawn(self, batch: _Batch, first: ClaimedDelivery) -> None:
        task = asyncio.get_running_loop().create_task(self._send_batch(batch, first), name="webhook")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._more and self._on_room is not None and not task.cancelled():
            self._more = False
            self._on_room()

    async def _send_batch(self, batch: _Batch, first: ClaimedDelivery) -> None:
        """Send one after the other while the receiver is quick; put the rest off."""
        try:
            quick = True
            while batch and quick and self._claims.has_time(batch[0]):
                quick = await self._attempt(batch.popleft()) and not self._stopping
        finally:
            self._release(first)
        if batch:
            rest = [*batch]
            batch.clear()
            await self._put_back(rest)

    async def _put_back(self, rest: list[ClaimedDelivery]) -> None:
        now = self._clock.now()
        later = [(each, now + timedelta(seconds=self._limits.retry_in_s(*_key(each)))) for each in rest]
        try:
            await self._claims.put_off(later, claimed=True)
        except StorageOutcomeUnknown:
            return  # the store reports it; they are due again when their lease is over
        except Exception:
            log.exception("webhook deliveries were not put off; they are due again when their lease is over")
            return
        self._expect(due for _, due in later)

    async def _attempt(self, claimed: ClaimedDelivery) -> bool:
        """Send one and store the result; True if the receiver answered in time for another one."""
        began = self._clock.elapsed()
        answered = False
        try:
            result = await self._send(claimed.delivery)
            took_s = self._clock.elapsed() - began
            answered = result.status is not None and took_s < SLOW_S
            self._limits.observe(*_key(claimed), answered=result.status is not None, took_s=took_s)
            if self._on_attempt is not None:
                self._on_attempt(result)
            await self._record(claimed, result)
        except StorageOutcomeUnknown:
            pass  # the store reports it; the delivery is due again when its lease is over
        except Exception:
            fields = _log_fields("webhook_failed", claimed)
            log.exception("the result of delivery %s was not stored", claimed.delivery.id, extra=fields)
        return answered

    async def _send(self, delivery: WebhookDelivery) -> DeliveryResult:
        try:
            body = self._render(delivery)
            seconds = int(self._clock.now().timestamp())
            secrets = await self.registry.secrets_of(delivery.job.client)
            self.transport = self.transport or self._open_transport()
            return await self.transport(delivery.url, sign(secrets, delivery.id, seconds, body), body)
        except StorageOutcomeUnknown:
            raise
        except Exception:  # counts as an attempt, so that it is not repeated for ever
            fields = {"action": "webhook_failed", "job_id": delivery.job.id}
            log.exception("delivery %s could not be sent", delivery.id, extra=fields)
            return DeliveryResult(error="an error of the orchestrator; its log says more")

    async def _record(self, claimed: ClaimedDelivery, result: DeliveryResult) -> None:
        """Store the result: remove the delivery, retry it later, or give up."""
        delivery, receiver = claimed.delivery, claimed.receiver
        if result.ok:
            if log.isEnabledFor(logging.DEBUG):
                log.debug("sent %s to %s", delivery.id, receiver, extra=_log_fields("webhook_sent", claimed))
            await self._claims.complete(claimed)
            return
        fields, now = _log_fields("webhook_not_heard", claimed), self._clock.now()
        tried = replace(
            delivery, tries=delivery.tries + 1, tried_at=now, status=result.status, error=result.error
        )
        if result.final or tried.tries > len(PAUSES_S):
            log.error("giving up the delivery to %s: %s", receiver, result.error, extra=fields)
            await self._claims.give_up(claimed, tried)
            return
        log.warning("the delivery to %s failed: %s", receiver, result.error, extra=fields)
        due = now + self._pause(tried.tries, result)
        await self._claims.retry(claimed, tried, due)
        self._expect([due])

    def _pause(self, tries: int, result: DeliveryResult) -> timedelta:
        pause_s = PAUSES_S[tries - 1] * (1 + _JITTER * (2 * self._chance.random() - 1))
        return timedelta(seconds=max(pause_s, result.retry_after_s or 0.0))


def build_sender(
    config: Config,
    storage: StorageBackend,
    token_of: Callable[[Job], str],
    clock: Clock,
    chance: random.Random,
    *,
    on_attempt: Callable[[DeliveryResult], None],
    on_room: Callable[[], None],
) -> WebhookSender:
    """The sender that the settings describe. `token_of` makes the token with which a job's approval is answered."""
    policy = AddressPolicy(config.webhook_allow_private)

    def render(delivery: WebhookDelivery) -> bytes:
        asks = isinstance(delivery.job.wait, AwaitHuman)
        return render_body(delivery, token_of(delivery.job) if asks else "", config.public_url)

    def open_transport() -> DeliveryTransport:
        from .client import WebhookClient  # aiohttp: most orchestrators never need it here

        return WebhookClient(policy, config.webhook_timeout_s)

    return WebhookSender(
        storage,
        open_transport,
        WebhookRegistry(policy, functools.partial(shared_secret, storage)),
        render,
        clock,
        chance,
        concurrency=config.webhook_concurrency,
        timeout_s=config.webhook_timeout_s,
        on_attempt=on_attempt,
        on_room=on_room,
    )


def _key(claimed: ClaimedDelivery) -> tuple[str, str]:
    """What limits are counted by."""
    return claimed.receiver, claimed.delivery.job.client


def _log_fields(action: str, claimed: ClaimedDelivery) -> dict[str, str]:
    return {
        "action": action,
        "delivery_id": claimed.delivery.id,
        "job_id": claimed.delivery.job.id,
        "receiver": claimed.receiver,
    }
