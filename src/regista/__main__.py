"""`python -m regista …` is `regista …`."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
