"""Slots: a worker's free slots, shared among several orchestrators (ROUND_ROBIN).

Each orchestrator may offer as many tasks as it has credit. A slot is either running a task, or lies as
credit with one of them, or is about to be given out; so the worker is never offered more than it can do.
"""

from collections.abc import Callable
from typing import Protocol


class Taker(Protocol):
    """Somebody who can be given credit."""

    @property
    def weight(self) -> int: ...
    def grant(self, more: int) -> None:
        """Offer so many more."""
        ...

    def ask_back(self, some: int) -> None:
        """Give back up to so many; the answer comes by `Slots.returned`."""
        ...


class _Share:
    __slots__ = ("active", "asked", "credit", "given_at", "moved", "turn")

    def __init__(self) -> None:
        #: Offers that it may still make.
        self.credit = 0
        #: Its place in the smooth weighted round; and when it was given something last, counted in gifts.
        self.turn = 0
        self.given_at = 0
        #: An answer to `ask_back` is on its way.
        self.asked = False
        #: It has offered something since the last look, or between the two looks before it.
        self.moved = False
        self.active = False


class Slots:
    """Gives free slots to whoever has the least unused credit for its weight; equals take turns."""

    def __init__(self, capacity: int, load: Callable[[], int]) -> None:
        self._capacity = capacity
        self._load = load
        self._shares: dict[Taker, _Share] = {}
        self._gifts = 0

    @property
    def free(self) -> int:
        """Slots that neither run a task nor lie with anybody."""
        lent = sum(share.credit for share in self._shares.values())
        return max(0, self._capacity - self._load() - lent)

    def credit_of(self, taker: Taker) -> int:
        """How many offers it may still make."""
        share = self._shares.get(taker)
        return share.credit if share is not None else 0

    def join(self, taker: Taker) -> int:
        """Take part; returns the first credit, which is not granted in another way."""
        self._shares[taker] = _Share()
        given = self._share_out()
        first = given.pop(taker, 0)
        _grant(given)
        return first

    def leave(self, taker: Taker) -> None:
        """Its credit is for the others."""
        if self._shares.pop(taker, None) is not None:
            self.share_out()

    def spent(self, taker: Taker, tasks: int) -> None:
        """It has offered so many."""
        share = self._shares.get(taker)
        if share is not None:
            share.credit = max(0, share.credit - tasks)
            share.moved = share.active = share.moved or tasks > 0

    def returned(self, taker: Taker, some: int) -> None:
        """It gave so much credit back."""
        share = self._shares.get(taker)
        if share is not None:
            share.asked = False
            share.credit = max(0, share.credit - some)
            _grant(self._share_out(giver=taker))

    def share_out(self) -> None:
        """Give away what is free."""
        _grant(self._share_out())

    def rebalance(self) -> None:
        """Called every second: credit that lies unused moves to those who have used up theirs."""
        shares = self._shares
        for share in shares.values():
            share.active, share.moved = share.moved, False
        # One that does not answer must not keep us from asking another.
        askable = [taker for taker, share in shares.items() if not share.asked]
        if len(shares) < 2 or not askable:
            return
        # Who has several can give one away, even if another has more for its weight with a single one.
        rich = max(askable, key=lambda taker: (shares[taker].credit > 1, self._wealth(taker)))
        some = self._surplus(rich, min(shares, key=self._wealth))
        if some > 0:
            shares[rich].asked = True
            rich.ask_back(some)

    def _surplus(self, rich: Taker, poor: Taker) -> int:
        """What the rich one can give so that both have the same for their weight."""
        mine, yours = self._shares[rich].credit, self._shares[poor].credit
        if yours and any(share.active for share in self._shares.values()):
            return 0  # who has work to give has credit for it
        if (mine, yours) == (1, 0):  # the last one stays, unless there is nothing else: then it wanders
            return 0 if self._load() else 1
        even = (mine / rich.weight - yours / poor.weight) / (1 / rich.weight + 1 / poor.weight)
        # Whoever has none gets one, however little it weighs: without it nobody finds out that it has work.
        return min(max(int(even), 0 if yours else 1), mine - 1)

    def _wealth(self, taker: Taker) -> float:
        return self._shares[taker].credit / taker.weight

    def _share_out(self, giver: Taker | None = None) -> dict[Taker, int]:
        """What `giver` has just given back is for the others: by its weight it would get it again and again."""
        given: dict[Taker, int] = {}
        for _ in range(self.free):
            taker = self._next(giver)
            if taker is None:
                break
            self._gifts += 1
            self._shares[taker].credit += 1
            self._shares[taker].given_at = self._gifts
            given[taker] = given.get(taker, 0) + 1
        return given

    def _next(self, giver: Taker | None) -> Taker | None:
        """The least credit for its weight; among equals the smooth weighted round decides."""
        candidates = self._hungry()
        if not candidates:
            return None
        if giver is not None:
            candidates = [taker for taker in candidates if taker is not giver] or candidates
            starved = [taker for taker in candidates if not self._shares[taker].credit]
            if starved:  # whatever they weigh: who has waited for longest
                return min(starved, key=lambda taker: self._shares[taker].given_at)
        least = min(map(self._wealth, candidates))
        equals = [taker for taker in candidates if self._wealth(taker) == least]
        for taker in equals:
            self._shares[taker].turn += taker.weight
        chosen = max(equals, key=lambda taker: self._shares[taker].turn)
        self._shares[chosen].turn -= sum(taker.weight for taker in equals)
        return chosen

    def _hungry(self) -> list[Taker]:
        """Those with work to give, and those without any credit; all, when nobody has work."""
        shares = self._shares
        wanting = [taker for taker, share in shares.items() if share.active or not share.credit]
        return wanting if any(share.active for share in shares.values()) else list(shares)


def _grant(given: dict[Taker, int]) -> None:
    for taker, more in given.items():
        taker.grant(more)
