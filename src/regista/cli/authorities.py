"""Authorities: whom the system trusts is read when a connection needs it, not when aiohttp is imported."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def read_late() -> Iterator[None]:
    """Contexts that are made meanwhile read the authorities of the system when they are first used.

    aiohttp makes two while it is imported, for whoever will ask for HTTPS. Reading a hundred certificates twice is a
    quarter of a start, and an orchestrator, or a worker that calls one over plain HTTP, never needs them. A context that
    had read nothing would trust nobody: what could go wrong here refuses a connection, and lets none in.
    """
    # Python's class inherits it from C, so there is nothing of that name to put back.
    ssl.SSLContext.set_default_verify_paths = _read_at_first_use  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths


def _read_at_first_use(context: ssl.SSLContext) -> None:
    """Put something before the two ways to use a context that reads, and then steps aside."""

    def reading(way: str) -> Callable[..., Any]:
        def use(*args: Any, **kwargs: Any) -> Any:
            if vars(context).pop("wrap_bio", None):
                del vars(context)["wrap_socket"]
                context.set_default_verify_paths()
            return getattr(context, way)(*args, **kwargs)

        return use

    vars(context).update(wrap_bio=reading("wrap_bio"), wrap_socket=reading("wrap_socket"))
