"""OrchestratorHttp: signed requests of one worker to one orchestrator."""

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from .credentials import OrchestratorCredentials

#: A body larger than this takes its time, and each further byte so much more of it: 25 kB a second.
LARGE_BYTES = 256 * 1024
_S_PER_BYTE = 1 / 25_000
#: The pause after 429 where `Retry-After` names none, and the longest pause.
_RETRY_AFTER_S, _MAX_RETRY_AFTER_S = 1.0, 30.0


class Reply(Struct, frozen=True):
    """The answer to a request."""

    status: int
    body: bytes
    retry_after: str = ""

    @property
    def json(self) -> dict[str, Any]:
        """The members of the answer; none of what is not a JSON object."""
        return read_json_object(self.body)


def read_json_object(body: bytes) -> dict[str, Any]:
    """The members of a JSON object; none of what is not one."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def strings_in(value: Any) -> list[str]:
    """The strings of a list; none of what is not a list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


async def send(
    client: aiohttp.ClientSession,
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes | None = None,
    params: dict[str, str] | None = None,
    timeout_s: float = 15.0,
) -> Reply:
    """Send one request. Raises ClientError, OSError or TimeoutError where no answer comes."""
    if body is not None:
        headers = headers | {"Content-Type": "application/json"}
        timeout_s += len(body) * _S_PER_BYTE
    data = None if body is None else BytesIO(body)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with client.request(
        method, url, data=data, params=params, headers=headers, timeout=timeout
    ) as answer:
        return Reply(answer.status, await answer.read(), answer.headers.get("Retry-After", ""))


class OrchestratorHttp:
    """Requests to the orchestrator at `url`, with the credentials that the worker has there."""

    def __init__(
        self, client: aiohttp.ClientSession, url: str, credentials: "OrchestratorCredentials"
    ) -> None:
        self.client = client
        self.url = url
        self.credentials = credentials
        #: Bodies above LARGE_BYTES that are being sent right now.
        self.large_uploads = 0

    @property
    def headers(self) -> dict[str, str]:
        """They identify the worker. A login may be renewed at any time, so they are read for each request."""
        return self.credentials.headers

    async def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        params: dict[str, str] | None = None,
        timeout_s: float = 15.0,
    ) -> Reply:
        """Send a request, signed where the orchestrator asks for it. Raises as `send`.

        A 401 is tried once more with renewed credentials. After 429 the request is sent again when the pause is over.
        """
        token = self.credentials.token
        reply = await self._send(method, path, body, params, timeout_s)
        if reply.status == 401 and await self._can_retry(reply, token):
            reply = await self._send(method, path, body, params, timeout_s)
        return reply

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        params: dict[str, str] | None,
        timeout_s: float,
    ) -> Reply:
        while True:
            data = None if body is None else msgspec.json.encode(self.credentials.sign_body(body))
            large = data is not None and len(data) > LARGE_BYTES
            self.large_uploads += large
            try:
                reply = await send(
                    self.client, method, self.url + path, self.headers, data, params, timeout_s
                )
            finally:
                self.large_uploads -= large
            if reply.status != 429:
                return reply
            await asyncio.sleep(_pause_of(reply))

    async def _can_retry(self, reply: Reply, token: str) -> bool:
        """After a 401: sign, where a signature was missing, or use a newer token."""
        credentials = self.credentials
        if reply.json.get("code") == "signature_missing" and not credentials.signature_required:
            credentials.signature_required = True
            if not credentials.has_key:
                await credentials.log_in(self.client, self.url)
            return True
        return await credentials.renew(self.client, self.url, token)


def _pause_of(reply: Reply) -> float:
    text = reply.retry_after
    if not (text.isascii() and text.isdigit()):
        return _RETRY_AFTER_S
    return min(max(float(text), _RETRY_AFTER_S), _MAX_RETRY_AFTER_S)
