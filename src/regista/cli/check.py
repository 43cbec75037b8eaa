"""Check: the result of one check of `regista doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked. `advice` is what to do about it, where it is not good."""

    about: str
    good: bool
    found: str
    advice: str = ""
    #: There was nothing to check, which is fine.
    skipped: bool = False
