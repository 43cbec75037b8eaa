"""System state: how an orchestrator is, in one word, computed from facts. Pure."""

from enum import StrEnum

from msgspec import Struct

#: A store that is away for longer than this is more than a restart of it.
AWAY_CRITICAL_S = 30.0
#: A loop that comes so late keeps everybody waiting.
LAG_DEGRADED_S = 1.0
#: History may be behind for a moment; this is more than a moment.
HISTORY_BEHIND_S = 60.0
#: Tasks that wait so long while no worker is there at all wait for somebody to start one.
UNSERVED_S = 30.0


class SystemState(StrEnum):
    """Initializing → Ready ↔ Running ↔ Degraded → Critical → Shutdown."""

    INITIALIZING = "initializing"
    READY = "ready"
    RUNNING = "running"
    DEGRADED = "degraded"
    CRITICAL = "critical"
    SHUTDOWN = "shutdown"


class Facts(Struct, frozen=True, kw_only=True):
    """What is known of an orchestrator right now."""

    started: bool = False
    stopping: bool = False
    #: The store failed for good; the process ends by itself.
    failed: bool = False
    #: Since when the store does not answer, in seconds; None while it does.
    store_away_s: float | None = None
    #: Whether the history answers; None when there is none.
    history_up: bool | None = None
    history_lag_s: float = 0.0
    loop_lag_s: float = 0.0
    workers: int = 0
    #: Attempts in the hands of workers.
    running: int = 0
    #: Tasks that wait for a worker, and for how long the first of them has.
    waiting: int = 0
    oldest_s: float = 0.0


class SystemHealth(Struct, frozen=True):
    """The state, and the named reasons for it when it is not a good one."""

    state: SystemState
    reasons: tuple[str, ...] = ()


def health_of(facts: Facts) -> SystemHealth:
    """The one word, and why."""
    if facts.stopping:
        return SystemHealth(SystemState.SHUTDOWN)
    if facts.failed:
        return SystemHealth(SystemState.CRITICAL, ("store_failed",))
    if not facts.started:
        return SystemHealth(SystemState.INITIALIZING)
    if facts.store_away_s is not None and facts.store_away_s >= AWAY_CRITICAL_S:
        return SystemHealth(SystemState.CRITICAL, ("store_unavailable",))
    if reasons := _troubles(facts):
        return SystemHealth(SystemState.DEGRADED, reasons)
    return SystemHealth(SystemState.RUNNING if facts.running or facts.waiting else SystemState.READY)


def _troubles(facts: Facts) -> tuple[str, ...]:
    """What is not as it should be, though jobs may go on."""
    found = {
        "store_unavailable": facts.store_away_s is not None,
        "history_unavailable": facts.history_up is False,
        "history_behind": facts.history_lag_s >= HISTORY_BEHIND_S,
        "loop_slow": facts.loop_lag_s >= LAG_DEGRADED_S,
        "no_workers": not facts.workers and facts.waiting > 0 and facts.oldest_s >= UNSERVED_S,
    }
    return tuple(name for name, holds in found.items() if holds)
