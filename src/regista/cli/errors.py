"""What went wrong, in one line, and as an exit code."""

import argparse
import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ApiError, ConfigError, RegistaError, Unreachable
from ..terminal import escape_control_chars
from ..tokens import CLIENT_FILE
from . import exit_codes


class UsageError(RegistaError):
    """The command itself was wrong."""

    code = "usage"


@contextmanager
def name_errors_by_flag(args: argparse.Namespace, **flags: str) -> Iterator[None]:
    """A wrong value that came from a flag is told by the flag's name. `flags`: field of the settings → flag."""
    try:
        yield
    except ConfigError as error:
        flag = flags.get(error.name)
        if flag is None or getattr(args, flag) is None:
            raise
        name = f"--{flag.replace('_', '-')}"
        raise UsageError(f"{name}: expected {error.expected}, got {error.got!r}") from error


def check_state_dir(state_dir: str | None) -> None:
    """A --dir that is one level too high holds nothing, and its .regista all that it should."""
    below = Path(state_dir or "", ".regista")
    if state_dir is None or Path(state_dir, CLIENT_FILE).exists() or not Path(below, CLIENT_FILE).exists():
        return
    raise UsageError(f"--dir: {state_dir} has no {CLIENT_FILE}, but {below} has; did you mean --dir {below}?")


def tell(error: Exception, *, debug: bool) -> int:
    """Say what went wrong, with the traceback where that is wanted; the exit code for it."""
    if debug:
        print(escape_control_chars("".join(traceback.format_exception(error))), end="", file=sys.stderr)  # noqa: T201
    print(escape_control_chars(f"regista: {error_message(error)}"), file=sys.stderr)  # noqa: T201
    return exit_code_for(error)


def error_message(error: Exception) -> str:
    """One line for people: what was found, and what to do about it."""
    if isinstance(error, Unreachable):
        return (
            f"{error}. Start one with `regista dev APP`, or name it with --url (REGISTA_URL), "
            "a local one also by its directory with --dir (REGISTA_DIR)."
        )
    if isinstance(error, ApiError) and error.status == 401:
        return (
            f"{error.detail}. Set CLIENT_TOKEN (to the token of your client, where the orchestrator has a "
            "clients.toml), or --dir (REGISTA_DIR) to the directory where the orchestrator keeps its tokens."
        )
    if isinstance(error, RegistaError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error.strerror} (choose another with --port)"
    if isinstance(error, OSError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (--debug shows the traceback)"


def exit_code_for(error: Exception) -> int:
    """The exit code for it."""
    if isinstance(error, ConfigError | UsageError):
        return exit_codes.USAGE
    if isinstance(error, Unreachable):
        return exit_codes.UNREACHABLE
    return exit_codes.FAILED
