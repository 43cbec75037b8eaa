"""Hangup: SIGHUP means "read your files again", and also that the terminal is gone. This tells the two apart."""

import os


class Terminal:
    """The terminal that this process was started at, if it was."""

    def __init__(self) -> None:
        self._fd = next((fd for fd in (0, 1, 2) if os.isatty(fd)), None)

    @property
    def gone(self) -> bool:
        """It was there, and was closed: nobody is left who could stop us."""
        return self._fd is not None and not os.isatty(self._fd)
