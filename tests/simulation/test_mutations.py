"""The simulation is only worth something if it notices bugs: here are some, and it must."""

import pytest

from regista.testing.simulation import SimulationFailed, simulate
from regista.testing.world import Faults

from . import mutations
from .blueprints import everything, shaky


@pytest.mark.simulation
@pytest.mark.timeout(240)  # which seed shows a bug moves with every change of the engine
@pytest.mark.parametrize("mutation", mutations.ALL, ids=lambda mutation: mutation.__name__)
def test_a_planted_bug_turns_the_simulation_red(
    mutation: mutations.Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(SimulationFailed):
        _storm()


def _storm() -> None:
    for start in range(0, 300, 10):
        simulate(everything(), seeds=range(start, start + 10), horizon_s=120, expect_finished=False)
        simulate(
            shaky(), seeds=range(start, start + 10), jobs=12, storm_s=10, horizon_s=120, expect_finished=False
        )
        # Some bugs show only where many change their mind.
        simulate(
            everything(),
            seeds=range(start, start + 10),
            faults=Faults(cancel=0.5),
            horizon_s=120,
            expect_finished=False,
        )
