"""QueueKey: where a task waits, and what the task requires of a worker."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

_encode_sorted = msgspec.json.Encoder(order="deterministic", enc_hook=repr).encode


class QueueKey(NamedTuple):
    """Tasks with the same key can be done by the same workers. Within a key, each client has a queue of its own.

    The client is not part of the key: which workers can do a task never depends on the client, and ten thousand
    clients must not make ten thousand keys to match.
    """

    queue: str
    type: str
    #: Requirements beyond queue and skill as one canonical text, empty for most tasks. `match_options` decodes it.
    options: str = ""


class MatchOptions(Struct, frozen=True, omit_defaults=True, gc=False):
    """What tasks of a key require beyond queue and skill, and the strategy that chooses among matching workers."""

    requirements: dict[str, Any] = field(default_factory=dict)
    max_cost: float | None = None
    strategy: str | None = None
    #: The task runs alone: its worker runs nothing else meanwhile.
    isolated: bool = False


class QueueStatus(Struct, frozen=True, gc=False):
    """The waiting tasks of one client under one key."""

    queue_key: QueueKey
    client: str
    waiting: int
    #: When the task that waits longest was queued.
    oldest: datetime | None


def match_options_text(
    requirements: Mapping[str, Any], max_cost: float | None, strategy: str | None, isolated: bool = False
) -> str:
    """The canonical text of the options, equal on every machine; empty when there are none."""
    if not requirements and max_cost is None and strategy in (None, "default") and not isolated:
        return ""
    options = MatchOptions(
        dict(requirements), max_cost, None if strategy == "default" else strategy, isolated
    )
    return _encode_sorted(options).decode()


@lru_cache(maxsize=4096)
def match_options(key: QueueKey) -> MatchOptions:
    """The options of a key."""
    return msgspec.json.decode(key.options, type=MatchOptions) if key.options else MatchOptions()


def queue_key_text(key: QueueKey) -> str:
    """The key as one string."""
    return _encode_sorted(tuple(key)).decode()


@lru_cache(maxsize=4096)
def parse_queue_key(text: str) -> QueueKey:
    """The key that `queue_key_text` wrote."""
    return msgspec.json.decode(text, type=QueueKey)
