"""What went wrong, in one line, and as an exit code."""

import errno

from ..errors import ApiError, ConfigError, RegistaError, Unreachable
from . import exits


class UsageError(RegistaError):
    """The command itself was wrong."""

    code = "usage"


def words_of(error: Exception) -> str:
    """One line for people: what was found, and what to do about it."""
    if isinstance(error, Unreachable):
        return f"{error}. Start one with `regista dev APP`, or name it with --url or REGISTA_URL."
    if isinstance(error, ApiError) and error.status == 401:
        return (
            f"{error.detail}. Set CLIENT_TOKEN, or --dir (REGISTA_DIR) to the directory where "
            "the orchestrator keeps its tokens."
        )
    if isinstance(error, RegistaError):
        return str(error)
    if isinstance(error, OSError):
        taken = " (choose another with --port)" if error.errno == errno.EADDRINUSE else ""
        return f"{error}{taken}"
    return f"unexpected {type(error).__name__}: {error} (--debug shows the traceback)"


def exit_of(error: Exception) -> int:
    """The exit code for it."""
    if isinstance(error, ConfigError | UsageError):
        return exits.USAGE
    if isinstance(error, Unreachable):
        return exits.UNREACHABLE
    return exits.FAILED
