"""Answers that are whole when they are given, as nearly all of ours are: head and body leave in one piece."""

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE, HttpVersion11

#: Answers that have no body whatever is in them, below 200 or one of these.
_NO_BODY = (204, 304)


class Answer(web.Response):
    """What `web.Response` would send, in fewer steps; where there is more to think about, that one does."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send all of it, unless that is done."""
        body = self._body
        if not body or type(body) is not bytes or self.prepared or not self._is_simple(request):
            return await super().prepare(request)
        headers, writer = self._headers, request.writer
        headers[hdrs.CONTENT_LENGTH] = str(len(body))
        headers.setdefault(hdrs.CONTENT_TYPE, "application/octet-stream")
        headers.setdefault(hdrs.DATE, rfc822_formatted_time())
        headers.setdefault(hdrs.SERVER, SERVER_SOFTWARE)
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        if not self._keep_alive:
            headers.setdefault(hdrs.CONNECTION, "close")
        await request._prepare_hook(self)  # of applications that ours is part of
        await writer.write_headers(f"HTTP/1.1 {self._status} {self._reason}", headers)
        await writer.write_eof(body)
        self._body_length = writer.output_size
        self._eof_sent = True
        return writer

    def _is_simple(self, request: web.BaseRequest) -> bool:
        """It has a body of a length that is known, for a reader of today, and nothing to set before."""
        return (
            request.version == HttpVersion11
            and request.method != hdrs.METH_HEAD
            and self._status >= 200
            and self._status not in _NO_BODY
            and not (self._chunked or self._compression or self._cookies)
        )
