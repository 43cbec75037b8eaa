"""Who asks. The operations of clients need a client's token."""

from aiohttp import hdrs, web

from ...model import ClientConfig
from ..doors import Doors
from ..problems import Problem

#: A header's name that need not be made small each time it is looked for.
CLIENT_TOKEN = type(hdrs.VARY)("X-Client-Token")


def let_in(request: web.Request, doors: Doors) -> ClientConfig:
    """The client whose token the request brings along; 401 without one."""
    token = token_of(request)
    if not token:
        raise Problem(
            401,
            "token_missing",
            "expected a client token in X-Client-Token or Authorization: Bearer, got none",
            headers={"WWW-Authenticate": "Bearer"},
        )
    client = doors.client(token)
    if client is None:
        raise Problem(
            401,
            "token_unknown",
            "this client token is not known here",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return client


def token_of(request: web.Request) -> str:
    """The token that a request brings along, or nothing."""
    token = request.headers.get(CLIENT_TOKEN, "")
    if token:
        return token
    kind, _, bearer = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else ""
