import pytest

from regista.errors import NotReady, OperatorsOnly
from tests.services_kit import ADA, OPS, orchestrator


async def test_the_chores_of_an_instance_are_for_operators() -> None:
    async with orchestrator() as director:
        with pytest.raises(OperatorsOnly):
            director.services.system.chores(ADA)
        assert {status.name for status in director.services.system.chores(OPS)} >= {"scheduler", "watcher"}


async def test_an_instance_is_ready_from_its_start_to_its_stop() -> None:
    async with orchestrator() as director:
        await director.services.system.check_ready()
    with pytest.raises(NotReady):
        await director.services.system.check_ready()
