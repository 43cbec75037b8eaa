"""Strategies: how to choose among workers that may all do a task. Pure.

Each is a pair. `static_rank` is what only changes with the class (price, warmth, reputation): candidates are
kept in its order. `live` is what changes with every task; it decides among those of equal static_rank. Both
say: the lower, the better.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..model import QueueKey, Worker, match_options
from .connected import ConnectedWorker
from .filters import requirements_of

StaticRank = tuple[float, ...]

#: A reputation of nothing would make a price of nothing infinite.
_WORST = 0.01


class Strategy(NamedTuple):
    """One way to choose."""

    static_rank: Callable[[Worker, QueueKey], StaticRank]
    dynamic_rank: Callable[[ConnectedWorker], int]
    #: In words, for `dry_run`.
    description: str
    #: Between instances, the least busy worker wins among those of equal static_rank; else our own does.
    spreads: bool = False


def _warm_then_cheap(worker: Worker, queue_key: QueueKey) -> StaticRank:
    return (0.0 if is_warm(worker, queue_key) else 1.0, cost(worker, queue_key))


def _cost(worker: Worker, queue_key: QueueKey) -> StaticRank:
    return (cost(worker, queue_key),)


def _cost_by_reputation(worker: Worker, queue_key: QueueKey) -> StaticRank:
    return (cost(worker, queue_key) / max(worker.profile.reputation, _WORST),)


def _all_equal(worker: Worker, queue_key: QueueKey) -> StaticRank:
    return ()


def _most_free(connected: ConnectedWorker) -> int:
    return -connected.free


def _longest_without(connected: ConnectedWorker) -> int:
    return connected.last_served


def _fewest_held(connected: ConnectedWorker) -> int:
    return len(connected.attempts)


STRATEGY_TABLE: dict[str, Strategy] = {
    "default": Strategy(_warm_then_cheap, _most_free, "warm first, then the cheapest, then the most free slots"),
    "round_robin": Strategy(_all_equal, _longest_without, "whoever has waited longest for a task", spreads=True),
    "least_connections": Strategy(_all_equal, _fewest_held, "whoever holds the fewest tasks", spreads=True),
    "cheapest": Strategy(_cost, _most_free, "the cheapest, then the most free slots"),
    "best_value": Strategy(_cost_by_reputation, _most_free, "the lowest price over reputation"),
}  # fmt: skip


def strategy_of(queue_key: QueueKey) -> Strategy:
    """What the queue asked for. An unknown name means the default."""
    return STRATEGY_TABLE.get(match_options(queue_key).strategy or "default", STRATEGY_TABLE["default"])


def cost(worker: Worker, queue_key: QueueKey) -> float:
    """Price per second of such a task there."""
    return worker.profile.cost_of(queue_key.type)


def is_warm(worker: Worker, queue_key: QueueKey) -> bool:
    """The skill is loaded there, or all models that the task needs are."""
    hot = worker.profile.hot
    if not hot or queue_key.type in hot:
        return bool(hot)
    models = requirements_of(queue_key)[0].models
    return bool(models) and all(name in hot for name in models)
