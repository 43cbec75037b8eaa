"""Loops: which event loop runs a process of ours."""

import asyncio


def fastest() -> "type[asyncio.AbstractEventLoop] | None":
    """uvloop's, where it is installed; None is Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
