"""How long something took by itself, on a machine that has other things to do."""

import time
from pathlib import Path

#: Of this thread, in nanoseconds: how long it ran, and how long it could have run but somebody else had the core.
SCHEDULED = Path("/proc/thread-self/schedstat")


def waited_for_a_core_s() -> float:
    """Seconds of this thread's life in which it was ready and not let run; 0 where nobody counts them."""
    try:
        return int(SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Stopwatch:
    """Seconds since it was made, less those in which other processes had the cores.

    Sleeping, waiting for an answer and working all count; what the neighbours do does not. So a limit says
    something about our code, and can be as tight beside other tests as on a machine of one's own.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._waited = waited_for_a_core_s()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._began - (waited_for_a_core_s() - self._waited)
