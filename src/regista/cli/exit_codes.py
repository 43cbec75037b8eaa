"""What the exit code says. docs/reference/cli.md shows the same table to people."""

#: The command did what it was asked; the job that was waited for has finished.
OK = 0
#: The job failed, or the orchestrator refused, or the command could not do what it was asked.
FAILED = 1
#: The command itself was wrong: an unknown flag, input that is not JSON, a setting that is wrong.
USAGE = 2
CANCELLED = 3
#: The job waits for a person: `regista jobs retry` or `regista jobs fail`.
QUARANTINED = 4
#: `--timeout` has passed. The job goes on.
TIMED_OUT = 5
#: No orchestrator answered.
UNREACHABLE = 6
#: Ctrl-C, as shells count it.
INTERRUPTED = 130

#: The status of a job that was waited for → the exit code. Any other status: the time was up.
_OF_STATUS = {"finished": OK, "failed": FAILED, "cancelled": CANCELLED, "quarantined": QUARANTINED}


def of_status(status: str) -> int:
    """The exit code that mirrors a job."""
    return _OF_STATUS.get(status, TIMED_OUT)
