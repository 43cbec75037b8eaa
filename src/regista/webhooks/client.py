"""WebhookClient: sends one delivery over HTTP, to addresses that were checked and to no others."""

import asyncio
import contextlib
import ssl

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from ..errors import WebhookRefused
from .addresses import AddressPolicy
from .base import DeliveryResult
from .resolver import CheckedResolver

#: Seconds that a receiver's `Retry-After` is honoured, at most.
_MAX_RETRY_AFTER_S = 3600.0
#: How long an idle connection is kept for the next delivery.
_KEEP_ALIVE_S = 15.0
#: Bytes of an answer's body that are read, and for how long, so that its connection can be used again.
_DRAIN_BYTES, _DRAIN_S = 64 * 1024, 0.2
_GONE = 410
_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "regista-webhooks",
    "Accept-Encoding": "identity",
}


class WebhookClient:
    """The transport over HTTP. It follows no redirects, keeps no cookies, and uses no proxy of the environment.

    An attempt takes up to twice the time-out: over a connection that was kept open, and over a new one.
    """

    def __init__(
        self, policy: AddressPolicy, timeout_s: float = 10.0, resolver: AbstractResolver | None = None
    ) -> None:
        """`resolver` must check the addresses that it returns; by default it is a CheckedResolver."""
        self._policy = policy
        self._timeout_s = timeout_s
        self._resolver = resolver
        #: Opened by the first delivery: most orchestrators never send one.
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        try:
            target = URL(url)
            # aiohttp passes names to the resolver, and connects to addresses without asking it.
            self._policy.check_host(target.raw_host or "")
            return await self._post_twice(target, headers, body)
        except WebhookRefused as refusal:
            return DeliveryResult(error=str(refusal), final=True)
        except aiohttp.ConnectionTimeoutError:
            return DeliveryResult(error="no connection in time")
        except TimeoutError:
            return DeliveryResult(error=f"no answer within {self._timeout_s:g} s")
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):  # before ClientError: they are that, too
            return DeliveryResult(error="expected the URL of a receiver", final=True)
        except (aiohttp.ClientError, OSError) as error:  # before ValueError: a bad certificate is both
            return DeliveryResult(error=_describe(error))
        except ValueError:
            return DeliveryResult(error="expected the URL of a receiver", final=True)

    async def stop(self) -> None:
        """Close the connections. Twice is fine, and so is before the first delivery."""
        session, self._session = self._session, None
        resolver, self._resolver = self._resolver, None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def _post_twice(self, url: URL, headers: dict[str, str], body: bytes) -> DeliveryResult:
        """Post again if the connection was lost: receivers close idle ones, maybe in this moment."""
        try:
            return await self._post(url, headers, body)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return await self._post(url, headers, body)

    async def _post(self, url: URL, headers: dict[str, str], body: bytes) -> DeliveryResult:
        async with self._open_session().post(
            url, data=body, headers=headers, allow_redirects=False
        ) as response:
            if not response.content.at_eof():
                # A short body is read, and its connection used again. Others are closed.
                with contextlib.suppress(asyncio.IncompleteReadError, aiohttp.ClientError, OSError):
                    async with asyncio.timeout(_DRAIN_S):
                        await response.content.readexactly(_DRAIN_BYTES)
            return _result(response)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._resolver = self._resolver or CheckedResolver(self._policy)
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,  # each look-up is checked
                ssl=ssl.create_default_context(),
                limit=0,  # the sender limits its attempts
                keepalive_timeout=_KEEP_ALIVE_S,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers=_HEADERS,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            )
        return self._session


def _result(response: aiohttp.ClientResponse) -> DeliveryResult:
    status = response.status
    if 200 <= status < 300:
        return DeliveryResult(status=status)
    error = f"answered {status}"
    if 300 <= status < 400:
        error += ": redirects are not followed, the URL must name the receiver itself"
    return DeliveryResult(
        status=status,
        error=error,
        final=status == _GONE,
        retry_after_s=_retry_after_s(response.headers.get("Retry-After", "")),
    )


def _retry_after_s(text: str) -> float | None:
    """The seconds that `Retry-After` names; None for a date."""
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        return None
    return min(float(text), _MAX_RETRY_AFTER_S)


def _describe(error: Exception) -> str:
    """What went wrong, without anything that the receiver has sent."""
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    text = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(cause).__name__}: {(text or 'the connection failed')[:200]}"
