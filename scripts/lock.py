"""Resolve everything that development needs into one lock file: `name==version  # what asks for it`.

Run by `make lock`. pip does the resolving; names and versions are all that is kept of its answer.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HEADER = """\
# Everything that developing and testing Regista installs, each at one version, for Python 3.11 to 3.13.
# Made by `make lock`. Install: pip install -r requirements.lock && pip install --no-deps -e .
"""


def resolve(requirements: list[str]) -> list[dict[str, Any]]:
    """What pip would install into an empty environment, as the metadata of each package."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    answer = subprocess.run([*command, "--report", "-", *requirements], check=True, capture_output=True)
    return [item["metadata"] for item in json.loads(answer.stdout)["install"]]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    return canonical(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def main(target: Path) -> None:
    project = tomllib.loads((target.parent / "pyproject.toml").read_text())["project"]
    groups = {"regista": project["dependencies"]}
    groups |= {f"regista[{extra}]": asked for extra, asked in project["optional-dependencies"].items()}

    packages = resolve([asked for group in groups.values() for asked in group])
    askers: dict[str, list[str]] = {}
    markers: dict[str, str] = {}
    for asker, requirements in groups.items():
        for requirement in requirements:
            askers.setdefault(name_of(requirement), []).append(asker)
            if ";" in requirement:
                markers[name_of(requirement)] = requirement.partition(";")[2].strip()
    for package in packages:
        for requirement in package.get("requires_dist", []):
            if "extra ==" not in requirement:
                askers.setdefault(name_of(requirement), []).append(canonical(package["name"]))

    lines = []
    for package in sorted(packages, key=lambda package: canonical(package["name"])):
        name = canonical(package["name"])
        marker = f" ; {markers[name]}" if name in markers else ""
        lines.append(f"{name}=={package['version']}{marker}  # {', '.join(sorted(set(askers[name])))}\n")
    target.write_text(HEADER + "".join(lines))
    print(f"{target}: {len(lines)} packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
