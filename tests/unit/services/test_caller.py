import pytest

from regista import ClientConfig
from regista.errors import OperatorsOnly
from regista.services.caller import (
    Role,
    approval_link_caller,
    client_caller,
    program_caller,
    worker_caller,
)
from tests.services_kit import ADA, OPS


def test_the_role_of_a_client_follows_from_its_configuration() -> None:
    assert client_caller(ClientConfig(name="x")).role is Role.CLIENT
    assert client_caller(ClientConfig(name="x", operator=True)).role is Role.OPERATOR


def test_an_actor_names_role_and_client() -> None:
    assert ADA.actor == "client:ada"
    assert OPS.actor == "operator:ops"
    assert worker_caller("w-1").actor == "worker:w-1"
    assert approval_link_caller().actor == "approval_link"


def test_only_operators_and_the_program_see_what_belongs_to_others() -> None:
    for caller in (OPS, program_caller("ada")):
        assert caller.may_see("bob")
        assert caller.visible_client is None
        caller.require_operator("do this")
    assert ADA.may_see("ada")
    assert not ADA.may_see("bob")
    assert ADA.visible_client == "ada"


@pytest.mark.parametrize(
    "caller", [ADA, worker_caller("ada"), approval_link_caller()], ids=lambda it: it.role
)
def test_others_may_not_do_what_is_for_operators(caller: object) -> None:
    with pytest.raises(OperatorsOnly):
        caller.require_operator("do this")  # type: ignore[attr-defined]


def test_a_worker_named_like_a_client_sees_nothing_of_it() -> None:
    assert not worker_caller("ada").may_see("ada")
    assert not approval_link_caller().may_see("")
