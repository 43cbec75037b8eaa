"""ReceiverLimits: how many deliveries may be under way to each receiver and for each client."""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

K = TypeVar("K")

#: A receiver that needs so many seconds for an answer is slow.
SLOW_S = 2.0
#: How long deliveries to a busy receiver are put off at least, and any delivery at most.
_BUSY_S, _MAX_S = 0.5, 60.0
#: How long deliveries to a slow receiver are put off after its first slow or missing answer; doubled by each further one.
_FIRST_BACKOFF_S = 1.0
#: Seconds that a receiver is expected to need before it has answered once, and the weight of its newest answer.
_FIRST_GUESS_S, _WEIGHT = 0.05, 0.3
#: Spreads delays evenly over a period: multiples of it, modulo 1, never crowd.
_GOLDEN = 0.618034
#: Idle receivers that are remembered.
_REMEMBERED = 1000


class _Doubt(Enum):
    """Why a receiver gets one slot only."""

    UNKNOWN = "unknown"
    SLOW = "slow"


class _Receiver:
    """What is known of a receiver, as one client uses it."""

    __slots__ = ("busy", "failures", "held", "known", "next_at", "pace_s", "spread")

    def __init__(self) -> None:
        self.busy = 0
        #: What its only attempt under way was counted as, if it was not quick when that began.
        self.held: _Doubt | None = None
        #: It has answered, or failed to, at least once.
        self.known = False
        #: Slow or missing answers in a row.
        self.failures = 0
        self.pace_s = _FIRST_GUESS_S
        #: When the last delivery that was put off comes back.
        self.next_at = 0.0
        self.spread = 0.0


class ReceiverLimits:
    """Gives out slots for attempts. In memory: each instance learns about receivers on its own.

    Receivers are judged for each client alone: a client that names a slow path of a shared host must not slow down
    others. Receivers that are slow, or never answered, share a part of their client's slots, and each has one; so
    the client's other receivers, and other clients, always find slots.
    """

    def __init__(
        self,
        total: int,
        elapsed: Callable[[], float],
        *,
        per_receiver: int = 4,
        per_client: int | None = None,
        slow_per_client: int | None = None,
    ) -> None:
        self._total = total
        self._elapsed = elapsed
        self._per_receiver = per_receiver
        self._per_client = max(1, total // 2) if per_client is None else per_client
        self._slow_per_client = max(1, total // 4) if slow_per_client is None else slow_per_client
        self._busy = 0
        self._clients: dict[str, int] = {}
        #: Attempts under way to receivers that are not known to be quick.
        self._doubtful: dict[tuple[str, _Doubt], int] = {}
        self._receivers: dict[tuple[str, str], _Receiver] = {}

    @property
    def full(self) -> bool:
        """No attempt may begin."""
        return self._busy >= self._total

    def is_quick(self, receiver: str, client: str) -> bool:
        """The receiver has answered, and in time when it was called last."""
        known = self._receivers.get((receiver, client))
        return known is not None and known.known and not known.failures

    def try_acquire(self, receiver: str, client: str) -> bool:
        """Take a slot. True: the caller must `release` it."""
        if self.full or self._clients.get(client, 0) >= self._per_client:
            return False
        state = self._state(receiver, client)
        doubt = _Doubt.SLOW if state.failures else None if state.known else _Doubt.UNKNOWN
        if state.busy >= (self._per_receiver if doubt is None else 1):
            return False
        if doubt is not None and not self._has_room_for(doubt, client):
            return False
        if doubt is not None:
            state.held = doubt
            _add(self._doubtful, (client, doubt), 1)
        state.busy += 1
        self._busy += 1
        _add(self._clients, client, 1)
        return True

    def release(self, receiver: str, client: str) -> None:
        """Give a slot back."""
        state = self._receivers[receiver, client]
        state.busy -= 1
        self._busy -= 1
        _add(self._clients, client, -1)
        if state.held is not None:
            _add(self._doubtful, (client, state.held), -1)
            state.held = None

    def observe(self, receiver: str, client: str, *, answered: bool, took_s: float) -> None:
        """Learn from an attempt. Whatever status the receiver answered, it is there."""
        state = self._state(receiver, client)
        if answered and took_s < SLOW_S:
            if state.failures:
                state.pace_s, state.next_at = took_s, 0.0
            state.failures = 0
        else:
            state.failures += 1
        state.pace_s += _WEIGHT * (took_s - state.pace_s) if state.known else took_s - state.pace_s
        state.known = True

    def retry_in_s(self, receiver: str, client: str) -> float:
        """How long to put off a delivery that got no slot. Each gets a time of its own, as slots will become free."""
        state = self._state(receiver, client)
        state.spread = (state.spread + _GOLDEN) % 1.0
        if state.failures:
            backoff_s = _FIRST_BACKOFF_S * 2.0 ** min(state.failures - 1, 6)
            return float(min(backoff_s, _MAX_S / 2)) * (1.0 + state.spread)
        now = self._elapsed()
        ahead_s = max(state.next_at - now, _BUSY_S) + min(state.pace_s, SLOW_S) / self._per_receiver
        if ahead_s > _MAX_S:  # further ones come back among the first
            ahead_s = _BUSY_S * (1.0 + state.spread)
        state.next_at = now + ahead_s
        return ahead_s

    def _has_room_for(self, doubt: _Doubt, client: str) -> bool:
        slow, unknown = (self._doubtful.get((client, each), 0) for each in (_Doubt.SLOW, _Doubt.UNKNOWN))
        if slow + unknown >= self._slow_per_client:
            return False
        # Slow receivers leave half of the room to unknown ones, which may be quick.
        return doubt is _Doubt.UNKNOWN or slow < max(1, self._slow_per_client // 2)

    def _state(self, receiver: str, client: str) -> _Receiver:
        state = self._receivers.get((receiver, client))
        if state is None:
            if len(self._receivers) >= _REMEMBERED:
                self._forget_idle()
            state = self._receivers[receiver, client] = _Receiver()
        return state

    def _forget_idle(self) -> None:
        now = self._elapsed()
        for key, state in list(self._receivers.items()):
            if not state.busy and state.next_at <= now:
                del self._receivers[key]


def _add(counts: dict[K, int], key: K, number: int) -> None:
    counts[key] = counts.get(key, 0) + number
    if not counts[key]:
        del counts[key]
