"""What the doors for workers need beside the configured tokens: logins, one-time passwords, and keys of signatures."""

import hmac
from collections import OrderedDict

from msgspec import Struct, field

from ..workers.credentials import TokenFamily, TokenLifetimes, WorkerTokenStore
from ..workers.one_time_passwords import OneTimePasswords
from .doors import Doors
from .stage import Stage

#: Workers whose keys are remembered, and keys of each.
_MOST_WORKERS = 10_000
_MOST_KEYS = 4


class Keys:
    """Tokens that workers came with lately. In memory only: they key signatures, and the store has but their hashes."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def remember(self, worker_id: str, token: str) -> None:
        """A worker came in with this token."""
        known = self._of.get(worker_id, ())
        if not known or known[0] != token:
            self._of[worker_id] = (token, *(key for key in known if key != token))[:_MOST_KEYS]
            if len(self._of) > _MOST_WORKERS:
                self._of.popitem(last=False)

    def of(self, worker_id: str) -> tuple[str, ...]:
        """The newest first."""
        return self._of.get(worker_id, ())

    def forget(self, worker_id: str) -> None:
        """It may not come in with them any more."""
        self._of.pop(worker_id, None)


class Logins(Struct, frozen=True):
    """One application's share of them."""

    credentials: WorkerTokenStore
    passwords: OneTimePasswords
    keys: Keys = field(default_factory=Keys)

    async def is_grounded(self, login: TokenFamily, doors: Doors) -> bool:
        """The configured token that a login was given for is still the worker's; others stand by themselves."""
        if not login.grounds:
            return True
        now = await self.credentials.fingerprint(doors.token_of(login.worker_id))
        return hmac.compare_digest(login.grounds, now)


def logins_of(stage: Stage) -> Logins:
    """The logins that this store holds."""
    lifetimes = TokenLifetimes(stage.config.sts_token_s, stage.config.sts_refresh_s)
    credentials = WorkerTokenStore(stage.storage, stage.clock, lifetimes)
    return Logins(credentials, OneTimePasswords(stage.storage, credentials))
