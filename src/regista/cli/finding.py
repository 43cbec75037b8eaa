"""Finding: one thing that `regista doctor` has looked at."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `advice` is what to do about it, where it is not good."""

    about: str
    good: bool
    found: str
    advice: str = ""
