"""Postman: carries deliveries over HTTP, to addresses that were looked at, and to no others."""

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from ..errors import WebhookRefused
from .addresses import Allowed
from .base import Answer
from .resolver import CheckedResolver, OwnThreads

#: Seconds that a receiver's `Retry-After` is believed at most.
_MOST_PATIENCE_S = 3600.0
#: Connections that are kept for the next delivery, in all.
_CONNECTIONS = 64
_GONE = 410
_HEADERS = {"Content-Type": "application/json", "User-Agent": "regista-webhooks"}


class Postman:
    """Sends one delivery at a time per call; redirects are not followed, bodies of answers not read."""

    def __init__(
        self,
        allowed: Allowed,
        timeout_s: float = 10.0,
        resolver: Callable[[], AbstractResolver] = OwnThreads,
    ) -> None:
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        try:
            target = URL(url)
            # An address in the URL is looked up by nobody, so it is looked at here.
            self._allowed.check_host(target.host or "")
            return await self._post(target, headers, body)
        except WebhookRefused as refusal:
            return Answer(error=str(refusal), final=True)
        except (ValueError, aiohttp.InvalidURL):
            return Answer(error="expected the URL of a receiver", final=True)
        except TimeoutError:
            return Answer(error=f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Answer(error=_words(error))

    async def _post(self, target: URL, headers: dict[str, str], body: bytes) -> Answer:
        session = self._open()
        sent = _HEADERS | headers
        async with session.post(target, data=body, headers=sent, allow_redirects=False) as response:
            status = response.status
            if 200 <= status < 300:
                return Answer(status=status)
            return Answer(
                status=status,
                error=_refusal(status),
                final=status == _GONE,
                retry_after_s=_patience(response.headers.get("Retry-After")),
            )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = CheckedResolver(self._allowed, self._resolver())
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, limit=_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,  # a proxy would look names up by itself
                auto_decompress=False,
            )
        return self._session

    async def stop(self) -> None:
        """Close the connections. Twice is fine, and so is before the first delivery."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed, the URL must name the receiver itself"
    return f"answered {status}"


def _patience(text: str | None) -> float | None:
    """The seconds that `Retry-After` names; a date counts as nothing."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 9):
        return None
    return min(float(text), _MOST_PATIENCE_S)


def _words(error: Exception) -> str:
    """What went wrong, in few words: nothing of what a stranger's server has sent."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return f"{type(error).__name__}: {(getattr(cause, 'strerror', None) or 'the connection failed')[:200]}"
