"""The command line."""


def main() -> int:
    """Run `regista …`."""
    raise SystemExit("regista: not here yet")
