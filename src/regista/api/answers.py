"""Answers that are whole when they are given, as nearly all of ours are: head and body leave in one piece."""

from collections.abc import Mapping

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.compression_utils import MAX_SYNC_CHUNK_SIZE
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE, HttpVersion11, StreamWriter
from aiohttp.http_writer import _serialize_headers
from aiohttp.web_response import REASON_PHRASES

#: Answers that have no body whatever is in them, below 200 or one of these.
_NO_BODY = (204, 304)
#: What aiohttp keeps headers in.
_Headers = type(web.Response().headers)


class Answer(web.Response):
    """What `web.Response` would send, in fewer steps; where there is more to think about, that one does."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send all of it, unless that is done."""
        if not self._is_simple(request):
            return await super().prepare(request)
        self._complete(request)
        await request._prepare_hook(self)  # of applications that ours is part of
        self._leave(request.writer)
        await request.writer.drain()
        return request.writer

    def send(self, request: web.BaseRequest) -> bool:
        """Send all of it now, unless that is done; False: `prepare` has to do it.

        For whom nobody wants to look at answers before. Whoever reads slowly may not have taken what was sent before:
        the writer can be waited for.
        """
        if self._eof_sent:
            return True
        if not self._is_simple(request):
            return False
        self._complete(request)
        self._leave(request.writer)
        return True

    def _is_simple(self, request: web.BaseRequest) -> bool:
        """It has a body of a length that is known, for a reader of today, and nothing was done or is to be set before."""
        return (
            type(self._body) is bytes
            and self._body != b""
            and self._status >= 200
            and self._status not in _NO_BODY
            and not (self._chunked or self._compression or self._cookies or self._eof_sent)
            and self._payload_writer is None
            and request.version == HttpVersion11
            and request.method != hdrs.METH_HEAD
        )

    def _complete(self, request: web.BaseRequest) -> None:
        headers = self._headers
        headers[hdrs.CONTENT_LENGTH] = str(len(self._body))  # type: ignore[arg-type]  # it is simple
        headers.setdefault(hdrs.CONTENT_TYPE, "application/octet-stream")
        headers.setdefault(hdrs.DATE, rfc822_formatted_time())
        headers.setdefault(hdrs.SERVER, SERVER_SOFTWARE)
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        if not self._keep_alive:
            headers.setdefault(hdrs.CONNECTION, "close")

    def _leave(self, writer: AbstractStreamWriter) -> None:
        assert isinstance(writer, StreamWriter)
        assert type(self._body) is bytes
        head = _serialize_headers(f"HTTP/1.1 {self._status} {self._reason}", self._headers)
        writer._writelines((head, self._body))
        writer._eof = True
        self._body_length = writer.output_size
        self._eof_sent = True


def whole(body: bytes, status: int, headers: Mapping[str, str]) -> Answer:
    """An answer with this body and these headers, that tell what it is.

    Every attribute that `web.Response` would set, without asking for each of its twenty ways to make one.
    """
    answer = Answer.__new__(Answer)
    answer._state = {}
    answer._headers = _Headers(headers)
    answer._status = status
    answer._reason = REASON_PHRASES[status]
    answer._body = body
    answer._zlib_executor_size = MAX_SYNC_CHUNK_SIZE
    answer._zlib_executor = None
    return answer
