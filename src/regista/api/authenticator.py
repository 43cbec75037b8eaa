"""Authenticator: whom the API lets in, and as whom. Read anew on SIGHUP; a file with a mistake changes nothing then."""

import hmac
import logging
from collections.abc import Callable

from ..config.credentials import ConfiguredTokens
from ..errors import ConfigError
from ..model import ClientConfig
from ..tokens import digest

log = logging.getLogger("regista.doors")


class Authenticator:
    """Knows tokens. Client tokens only as hashes; worker tokens as they are, since they key signatures."""

    def __init__(self, read: Callable[[], ConfiguredTokens]) -> None:
        self._read = read
        #: As last read. The same object as a moment ago: nobody was let in or shut out since.
        self.tokens = read()
        #: The file, or the setting, that the last reload was refused for; empty: it was not.
        self.mistaken = ""

    def reload(self) -> bool:
        """Read the files again. False, and all stays as it was, when there is a mistake in them."""
        try:
            self.tokens = self._read()
        except ConfigError as error:
            self.mistaken = error.name.partition(", line ")[0]
            log.error("who may come in stays as it was: %s", error, extra={"action": "doors_reload"})
            return False
        self.mistaken = ""
        log.info("read anew who may come in", extra={"action": "doors_reload"})
        return True

    def client(self, token: str) -> ClientConfig | None:
        """The client that this token is of."""
        # A dictionary of hashes: how long a look-up takes says nothing about the token.
        return self.tokens.clients.get(digest(token))

    def token_of(self, worker_id: str) -> str:
        """What this worker must bring: its own token, if it has one, and then no other; else everybody's."""
        own = self.tokens.workers.of(worker_id)
        return self.tokens.worker_token if own is None else own

    def has_own(self, worker_id: str) -> bool:
        """The worker has a token of its own, and may come in with no other."""
        return self.tokens.workers.of(worker_id) is not None

    def owner_of(self, token: str) -> str | None:
        """The worker whose own token this is; None when it is nobody's, or good for several."""
        every = [(name, _same(token, own)) for name, own in self.tokens.workers.by_id.items()]
        return next((name for name, same in every if same), None)

    def knows(self, token: str) -> bool:
        """Some worker has this token."""
        workers = self.tokens.workers
        every = [self.tokens.worker_token, *workers.by_id.values(), *(one for _, one in workers.by_pattern)]
        same = [_same(token, one) for one in every]  # all of them: the time it takes says nothing
        return any(same)

    def is_of(self, token: str, worker_id: str) -> bool:
        """The worker may come in with this token. Another one of its own, or everybody's, does not help it."""
        return _same(token, self.token_of(worker_id))


def _same(token: str, right: str) -> bool:
    """How long the comparison takes says nothing about the right one. No token is nobody's."""
    return bool(right) and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), right.encode())
