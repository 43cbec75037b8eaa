"""Prints the lowest allowed version of every runtime dependency, one `name==version` a line.

`make test-lowest` installs them over the locked development environment: a lower bound that is not tested is a guess.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]
BOUND = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\w.]+)[^;]*(?P<marker>;.*)?")


def lowest() -> Iterator[str]:
    extras = PROJECT["optional-dependencies"]
    for requirement in [
        *PROJECT["dependencies"],
        *(each for name in extras if name != "dev" for each in extras[name]),
    ]:
        found = BOUND.fullmatch(requirement)
        if found is None:
            sys.exit(
                f"pyproject.toml: expected name>=version[,<next] for every dependency, got {requirement!r}"
            )
        yield f"{found['name']}=={found['version']}{found['marker'] or ''}"


if __name__ == "__main__":
    print("\n".join(lowest()))
