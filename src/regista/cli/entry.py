"""From arguments to an exit code: find the function, run it, and say what went wrong in one line."""

import argparse
import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

from . import exit_codes
from .parser import build_parser

#: What a command does with its arguments; what comes of it is the exit code.
Command = Callable[[argparse.Namespace], int | Coroutine[Any, Any, int]]


def run(argv: Sequence[str] | None = None) -> int:
    """Parse, do, and turn every way out into an exit code. No traceback unless `--debug`."""
    words = sys.argv[1:] if argv is None else argv
    parser = build_parser(words)
    args = parser.parse_args(words)
    if not hasattr(args, "run") or args.run is None:
        getattr(args, "overview", parser.print_help)()
        return exit_codes.OK
    try:
        return _perform(args)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has enough (`| head`). Nothing may be flushed into that pipe at exit either.
        sys.stdout = None
        return exit_codes.OK
    except Exception as error:  # noqa: BLE001  # the outermost turn: whatever is left becomes one line
        from .errors import tell

        return tell(error, debug=debug_wanted(args))


def debug_wanted(args: argparse.Namespace) -> bool:
    """`--debug`, or its variable; an environment that cannot be read has none."""
    from ..config import Connection
    from ..errors import ConfigError

    try:
        return Connection.from_env(debug=getattr(args, "debug", None)).debug
    except ConfigError:
        return bool(getattr(args, "debug", None))


def _function(name: str) -> Command:
    """What performs a command. The collector rests meanwhile, and never looks at what was loaded: it all stays."""
    noun, _, verb = name.partition(".")
    gc.disable()  # it would go through hundreds of modules again and again
    try:
        from .authorities import read_late  # with ssl, which --help can do without

        with read_late():
            function: Command = getattr(import_module(f".{noun}", __package__), verb)
        return function
    finally:
        gc.freeze()
        gc.enable()


def _perform(args: argparse.Namespace) -> int:
    function = _function(args.run)
    import inspect  # and asyncio: half of the time that `--help` would take

    if not inspect.iscoroutinefunction(function):
        return int(function(args))  # type: ignore[arg-type]
    import asyncio

    with asyncio.Runner() as runner:
        code: int = runner.run(function(args))
    return code
