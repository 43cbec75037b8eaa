"""`regista version`."""

import argparse
import platform

from .. import __version__
from .output import output_for


def show(args: argparse.Namespace) -> int:
    """Say which Regista this is, on which Python."""
    output = output_for(args)
    if output.json:
        output.json_document({"regista": __version__, "python": platform.python_version()})
    else:
        output.line(f"regista {__version__} (Python {platform.python_version()})")
    return 0
