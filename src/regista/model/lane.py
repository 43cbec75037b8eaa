"""Lane: where a task waits, and what it asks of whoever takes it."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

_in_order = msgspec.json.Encoder(order="deterministic", enc_hook=repr)


class Lane(NamedTuple):
    """Tasks of one lane can be done by the same workers. Within it every client has a line of its own.

    A client is no part of it: who may do a task never depends on who asked for it, and ten thousand
    clients must not make ten thousand lanes to choose from.
    """

    queue: str
    type: str
    #: What is asked beyond queue and skill, in one canonical text; empty for most tasks. `needs_of` reads it.
    needs: str = ""


class Needs(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a lane asks of a worker beyond queue and skill, and how to choose among those who fit."""

    requirements: dict[str, Any] = field(default_factory=dict)
    max_cost: float | None = None
    strategy: str | None = None
    #: The worker that runs the task runs nothing else meanwhile.
    isolated: bool = False


class LaneStatus(Struct, frozen=True, gc=False):
    """The line of one client in one lane."""

    lane: Lane
    client: str
    waiting: int
    #: When the task that waits longest was queued.
    oldest: datetime | None


def needs_text(
    requirements: Mapping[str, Any], max_cost: float | None, strategy: str | None, isolated: bool = False
) -> str:
    """The same text for the same needs, on every machine; empty when nothing is asked."""
    if not requirements and max_cost is None and strategy in (None, "default") and not isolated:
        return ""
    needs = Needs(dict(requirements), max_cost, None if strategy == "default" else strategy, isolated)
    return _in_order.encode(needs).decode()


@lru_cache(maxsize=4096)
def needs_of(lane: Lane) -> Needs:
    """What the lane asks for. No table is needed: a lane says it itself, to whoever reads it from a store."""
    return msgspec.json.decode(lane.needs, type=Needs) if lane.needs else Needs()


def lane_name(lane: Lane) -> str:
    """A lane as one string."""
    return _in_order.encode(tuple(lane)).decode()


@lru_cache(maxsize=4096)
def lane_of(name: str) -> Lane:
    """The lane that a name means."""
    return msgspec.json.decode(name, type=Lane)
