import pytest

from regista.errors import OperatorsOnly
from tests.services_kit import ADA, OPS, orchestrator


async def test_the_chores_of_an_instance_are_for_operators() -> None:
    async with orchestrator() as director:
        with pytest.raises(OperatorsOnly):
            director.services.system.chores(ADA)
        assert {status.name for status in director.services.system.chores(OPS)} >= {"scheduler", "watcher"}
