"""Credentials of workers, for operators: one-time passwords, and revocation."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from ..errors import PasswordsDisabled
from ..workers.credentials import WorkerTokenStore
from ..workers.one_time_passwords import LIFETIME_S, OneTimePassword, OneTimePasswords
from .audit import AuditService
from .caller import Caller


class Revoked(Struct, frozen=True):
    """What a revocation ended: token families, and unused one-time passwords."""

    worker_id: str
    logins: int
    passwords: int


class TokenService:
    """Creates and revokes credentials of workers. Every method requires an operator."""

    def __init__(
        self,
        credentials: WorkerTokenStore,
        passwords: OneTimePasswords,
        audit: AuditService,
        *,
        certificates_only: bool,
        on_revoked: Callable[[str], Awaitable[None]],
    ) -> None:
        """`on_revoked` ends what the worker has open with the credentials that were revoked."""
        self._credentials = credentials
        self._passwords = passwords
        self._audit = audit
        self._certificates_only = certificates_only
        self._on_revoked = on_revoked

    async def create_password(
        self, caller: Caller, worker_id: str = "", lifetime_s: float = LIFETIME_S
    ) -> OneTimePassword:
        """A password that is good once; without `worker_id`, for the first worker that uses it.

        Raises PasswordsDisabled where workers authenticate by certificate only.
        """
        caller.require_operator("create or revoke tokens of workers")
        if self._certificates_only:
            raise PasswordsDisabled
        work = self._passwords.make(worker_id, lifetime_s)
        return await self._audit.perform(caller, "token.otp", worker_id, work)

    async def revoke(self, caller: Caller, worker_id: str) -> Revoked:
        """End the tokens and passwords of a worker, and what it has open with them.

        Configured tokens stay: a worker that knows one may connect again.
        """
        caller.require_operator("create or revoke tokens of workers")
        return await self._audit.perform(caller, "token.revoke", worker_id, self._revoke(worker_id))

    async def _revoke(self, worker_id: str) -> Revoked:
        passwords = await self._passwords.revoke(worker_id)
        logins = await self._credentials.revoke(worker_id)
        await self._on_revoked(worker_id)
        return Revoked(worker_id, logins, passwords)
