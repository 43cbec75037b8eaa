"""Reads what Prometheus would read, strictly."""

import re

_LABELS = r'(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*'
_LINE = re.compile(
    r"(?P<name>[a-z_:][a-z0-9_:]*)(?:\{(?P<labels>" + _LABELS + r")\})? (?P<value>[-+.0-9eInfa]+)"
)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Series = dict[tuple[tuple[str, str], ...], float]


def parse(page: str) -> dict[str, Series]:
    """Name of a series → its labels → its value. A line that is none fails."""
    found: dict[str, Series] = {}
    for line in page.splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        labels = tuple(_LABEL.findall(match["labels"] or ""))
        found.setdefault(match["name"], {})[labels] = float(match["value"])
    return found


def families(page: str) -> dict[str, str]:
    """Name of a metric → its type."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


def value(page: dict[str, Series], name: str, **labels: str) -> float:
    """The sum of all series that have these labels."""
    wanted = set(labels.items())
    return sum(number for has, number in page.get(name, {}).items() if wanted <= set(has))
