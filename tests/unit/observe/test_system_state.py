from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.observe.system_state import AWAY_CRITICAL_S, Facts, SystemState, health_of


@pytest.mark.parametrize(
    ("facts", "state", "reasons"),
    [
        ({}, "initializing", ()),
        ({"started": True}, "ready", ()),
        ({"started": True, "running": 1}, "running", ()),
        ({"started": True, "waiting": 3, "workers": 1}, "running", ()),
        ({"started": True, "store_away_s": 1.0}, "degraded", ("store_unavailable",)),
        ({"started": True, "store_away_s": AWAY_CRITICAL_S}, "critical", ("store_unavailable",)),
        ({"started": True, "history_up": False}, "degraded", ("history_unavailable",)),
        ({"started": True, "history_up": True, "history_lag_s": 61.0}, "degraded", ("history_behind",)),
        ({"started": True, "loop_lag_s": 2.0}, "degraded", ("loop_slow",)),
        ({"started": True, "waiting": 1, "oldest_s": 31.0}, "degraded", ("no_workers",)),
        ({"started": True, "waiting": 1, "oldest_s": 5.0}, "running", ()),
        ({"started": True, "failed": True}, "critical", ("store_failed",)),
        ({"started": True, "failed": True, "stopping": True}, "shutdown", ()),
    ],
)
def test_the_state_follows_from_the_facts(
    facts: dict[str, Any], state: str, reasons: tuple[str, ...]
) -> None:
    found = health_of(Facts(**facts))

    assert (found.state, found.reasons) == (state, reasons)


@given(st.builds(Facts))
def test_a_bad_state_has_a_reason_and_a_good_one_has_none(facts: Facts) -> None:
    found = health_of(facts)

    bad = found.state in (SystemState.DEGRADED, SystemState.CRITICAL)
    assert bool(found.reasons) == bad
