"""Client: who submits jobs."""

from typing import Any

from msgspec import Struct, field

from .rate import Rate


class ClientConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What `clients.toml` says about a client. Its token is not part of it: a handler needs no secret."""

    name: str = ""
    plan: str = ""
    #: Accepted jobs per calendar month; None is unlimited.
    monthly_attempts: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    #: Sees and moves the jobs of everybody.
    operator: bool = False
    #: How often it may do what, where that is not as for everybody; None is as often as it likes.
    rate_limits: dict[str, Rate | None] = field(default_factory=dict)
