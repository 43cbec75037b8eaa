"""Client: who submits jobs."""

from typing import Any

from msgspec import Struct, field

from .rate import Rate


class ClientConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The entry of a client in `clients.toml`, without its token."""

    name: str = ""
    plan: str = ""
    #: Accepted jobs per calendar month; None is unlimited.
    monthly_attempts: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    #: May see and manage the jobs of all clients.
    operator: bool = False
    #: Rate limits that differ from the defaults; None: unlimited.
    rate_limits: dict[str, Rate | None] = field(default_factory=dict)
