"""Trouble: no answer that counts, and what that means for the next try."""

import aiohttp

from ..errors import RegistaError, Unreachable
from ..wire.http_line import Unheard
from ..wire.trouble import why
from .refusals import error_of

#: Not now, but maybe soon: the request was not taken up, or somebody between us and the orchestrator failed.
_NOT_NOW = frozenset({429, 502, 503, 504})
#: Nobody has heard us.
_NOT_EVEN_CONNECTED = (Unheard, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Trouble(Exception):
    """No answer that counts; perhaps the next try gets one."""

    def __init__(
        self,
        reason: str,
        *,
        untouched: bool = False,
        final: bool = False,
        retry_after_s: float = 0.0,
        error: RegistaError | None = None,
    ) -> None:
        super().__init__(reason)
        #: Nobody can have done what was asked.
        self.untouched = untouched
        #: Another try would go no better: a certificate that is not trusted is not trusted a second later.
        self.final = final
        self.retry_after_s = retry_after_s
        self._error = error

    def as_error(self, url: str) -> RegistaError:
        """What to raise when there is no next try."""
        return self._error or Unreachable(url, str(self))


def trouble_of(error: Exception, never_answered: str) -> Trouble:
    """What a failed connection means. Before it was made, nobody can have heard us."""
    distrust = isinstance(error, aiohttp.ClientConnectorCertificateError) or (
        isinstance(error, Unheard) and error.distrust
    )
    return Trouble(
        why(error, never_answered), untouched=isinstance(error, _NOT_EVEN_CONNECTED), final=distrust
    )


def refuse(status: int, retry_after: str | None, body: bytes) -> None:
    """Raise what a refusal stands for."""
    error = error_of(status, body)
    if status not in _NOT_NOW:
        raise error
    raise Trouble(str(error), untouched=status == 429, retry_after_s=_seconds(retry_after or ""), error=error)


def _seconds(text: str) -> float:
    """`Retry-After` in seconds; a date, or nothing, asks for no particular pause."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
