"""Callers of services, as requests name them."""

from aiohttp import web

from ..services.caller import Caller, approval_link_caller, client_caller, worker_caller
from .network import client_address
from .stage import CLIENT


def caller_of(request: web.Request) -> Caller:
    """The client that sent an authenticated request; without a client's token, the holder of an approval link."""
    client, address = request.get(CLIENT), client_address(request)
    return approval_link_caller(address) if client is None else client_caller(client, address)


def worker_calling(request: web.Request, worker_id: str) -> Caller:
    """The worker that sent a request of the worker protocol."""
    return worker_caller(worker_id, client_address(request))
