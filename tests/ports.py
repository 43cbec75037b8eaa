"""Ports for servers that must be told their port, or come back to it, while other tests run beside them.

A port that is asked for from the kernel (`bind` to 0), closed, and handed to a process can be given to somebody
else in between. So these come from below the range that the kernel chooses from, and each test process has a
block of its own: whoever holds the first port of a block has the rest of it.
"""

import os
import socket
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

#: Where the kernel says from which ports on it chooses by itself.
KERNELS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below it many a service has its usual port.
LOWEST = 10_000
BLOCK = 100


class Block:
    """A hundred ports that no other process takes from, as long as this one lives."""

    def __init__(self, lowest: int = LOWEST, highest: int | None = None) -> None:
        end = _kernels_first() if highest is None else highest
        for first in range(lowest, end - BLOCK + 1, BLOCK):
            if (hold := _listen(first)) is not None:
                self._hold = hold.detach()  # held to the end of the process, and then nobody's to close
                self._ports: Iterator[int] = cycle(range(first + 1, first + BLOCK))
                return
        raise RuntimeError(f"expected a free block of {BLOCK} ports between {lowest} and {end}, found none")

    def take(self) -> int:
        """A port that nobody listens on, and that comes up again after all the others only."""
        for _ in range(BLOCK):
            port = next(self._ports)
            if (probe := _listen(port)) is not None:
                probe.close()
                return port
        raise RuntimeError(f"all {BLOCK} ports of the block are in use: close what was started")

    def close(self) -> None:
        """Let another process have the block."""
        os.close(self._hold)


_block: Block | None = None


def free_port() -> int:
    """A port on this machine that stays free until its taker uses it, also between two uses."""
    global _block
    if _block is None:
        _block = Block()
    return _block.take()


def _kernels_first() -> int:
    try:
        return int(KERNELS_OWN.read_text().split()[0])
    except OSError:
        return 32_768  # the usual; a machine without /proc has a still higher one


def _listen(port: int) -> socket.socket | None:
    """A socket that listens there, or None where somebody else does. Old connections are no obstacle."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port))
        held.listen()  # two may bind the same port with this option; only one may listen
    except OSError:
        held.close()
        return None
    return held
