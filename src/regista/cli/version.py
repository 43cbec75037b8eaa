"""`regista version`."""

import argparse
import platform

from .. import __version__
from .output import screen_for


def show(asked: argparse.Namespace) -> int:
    """Say which Regista this is, on which Python."""
    screen = screen_for(asked)
    if screen.json:
        screen.document({"regista": __version__, "python": platform.python_version()})
    else:
        screen.say(f"regista {__version__} (Python {platform.python_version()})")
    return 0
