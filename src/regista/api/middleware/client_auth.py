"""Who asks. The operations of clients need a client's token."""

from aiohttp import web
from aiohttp.typedefs import Handler

from ..operations import CLIENTS_ONLY
from ..problems import Problem
from ..stage import CLIENT, STAGE


@web.middleware
async def client_auth(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let clients in, and say to the handler who they are."""
    if request.match_info.handler in CLIENTS_ONLY:
        token = token_of(request)
        if not token:
            raise Problem(
                401,
                "token_missing",
                "expected a client token in X-Client-Token or Authorization: Bearer, got none",
                headers={"WWW-Authenticate": "Bearer"},
            )
        client = request.config_dict[STAGE].doors.client(token)
        if client is None:
            raise Problem(
                401,
                "token_unknown",
                "this client token is not known here",
                headers={"WWW-Authenticate": "Bearer"},
            )
        request[CLIENT] = client
    return await handler(request)


def token_of(request: web.Request) -> str:
    """The token that a request brings along, or nothing."""
    token = request.headers.get("X-Client-Token", "")
    if token:
        return token
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else ""
