import pytest

from regista.clock import SystemClock
from regista.errors import OperatorsOnly, PasswordsDisabled
from regista.services.audit import AuditService
from regista.services.tokens import TokenService
from regista.storage.memory import MemoryStorage
from regista.workers.credentials import TokenLifetimes, TokenRefused, WorkerTokenStore
from regista.workers.one_time_passwords import OneTimePasswords
from tests.services_kit import ADA, OPS, actions_of


class Hall:
    """A token service, and the workers that it had disconnected."""

    def __init__(self, certificates_only: bool = False) -> None:
        self.storage = MemoryStorage()
        clock = SystemClock()
        self.credentials = WorkerTokenStore(self.storage, clock, TokenLifetimes(60.0, 600.0))
        self.passwords = OneTimePasswords(self.storage, self.credentials)
        self.disconnected: list[str] = []
        self.tokens = TokenService(
            self.credentials,
            self.passwords,
            AuditService(self.storage, clock, "one", 1),
            certificates_only=certificates_only,
            on_revoked=self._disconnect,
        )

    async def _disconnect(self, worker_id: str) -> None:
        self.disconnected.append(worker_id)


async def test_only_operators_create_passwords_and_revoke_tokens() -> None:
    hall = Hall()
    await hall.storage.start()
    with pytest.raises(OperatorsOnly):
        await hall.tokens.create_password(ADA)
    with pytest.raises(OperatorsOnly):
        await hall.tokens.revoke(ADA, "w")
    assert hall.disconnected == []
    assert await actions_of(hall.storage, ADA) == []


async def test_revoked_credentials_are_useless_and_their_worker_is_disconnected() -> None:
    hall = Hall()
    await hall.storage.start()
    await hall.credentials.issue("w", "")
    password = await hall.tokens.create_password(OPS, "w", 60.0)

    revoked = await hall.tokens.revoke(OPS, "w")

    assert (revoked.logins, revoked.passwords) == (1, 1)
    assert hall.disconnected == ["w"]
    with pytest.raises(TokenRefused):
        await hall.passwords.trade(password.text, "w", "")
    assert await actions_of(hall.storage, OPS) == [("token.revoke", "w"), ("token.otp", "w")]


async def test_no_passwords_where_workers_authenticate_by_certificate() -> None:
    hall = Hall(certificates_only=True)
    await hall.storage.start()
    with pytest.raises(PasswordsDisabled):
        await hall.tokens.create_password(OPS)
    assert await actions_of(hall.storage, OPS) == []
