"""The command line: `regista …`. A file per noun; nothing heavy is imported before a command needs it."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `regista …`; what is returned is the exit code (`cli.exits`)."""
    from .entry import run

    return run(argv)
