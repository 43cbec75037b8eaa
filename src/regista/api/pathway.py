"""Pathway: a path whose names stand for whole parts, like `/jobs/{job_id}/history`.

It takes what aiohttp's own takes. That one compiles a pattern for each path, which for a hundred of them was the longest
step of building the API; a path of this kind can be compared part by part.
"""

import re
from typing import Any

from aiohttp import web

_NAME = re.compile(r"{([A-Za-z_]\w*)}", re.ASCII)
#: Text that is the same in an address as it is here.
_PLAIN = re.compile(r"[\w.~:-]*", re.ASCII)


def is_pathway(path: str) -> bool:
    """Each part of it is a name or plain text, and no name is there twice."""
    parts = path.split("/")
    names = [part for part in parts if _NAME.fullmatch(part)]
    plain = [part for part in parts if _PLAIN.fullmatch(part)]
    return bool(names) and len(names) + len(plain) == len(parts) and len({*names}) == len(names)


class Pathway(web.Resource):
    """A resource at such a path."""

    def __init__(self, path: str, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self._added = path
        self._prefix = ""
        self._lay()

    def _lay(self) -> None:
        before, after = self._prefix.split("/"), self._added.split("/")[1:]
        names = [*(None for _ in before), *map(_NAME.fullmatch, after)]
        #: What stands between the slashes; None for anything.
        self.parts = tuple(None if name else part for part, name in zip(before + after, names, strict=True))
        #: Where each name stands; and the other parts, with nothing in these places.
        self._names = [(at, name[1]) for at, name in enumerate(names) if name]
        self._others = [part or "" for part in self.parts]

    @property
    def canonical(self) -> str:
        """The path, with its names."""
        return self._prefix + self._added

    def add_prefix(self, prefix: str) -> None:
        """The application was mounted below this prefix."""
        self._prefix = prefix + self._prefix
        self._lay()

    def raw_match(self, path: str) -> bool:
        """It was added by this path."""
        return self._added == path

    def get_info(self) -> Any:
        """What aiohttp tells of a resource."""
        return {"formatter": self.canonical}

    def url_for(self, **parts: str) -> Any:
        """The address that the path becomes."""
        return web.DynamicResource(self.canonical).url_for(**parts)

    def _match(self, path: str) -> dict[str, str] | None:
        parts = path.split("/")
        if len(parts) != len(self._others):
            return None
        is_odd = "%" in path or "{" in path or "}" in path
        found: dict[str, str] = {}
        for at, name in self._names:
            part = parts[at]
            if not part or (is_odd and ("{" in part or "}" in part)):
                return None
            # A path comes without quotes but for these two, which would not be what they are.
            found[name] = part.replace("%2F", "/").replace("%25", "%") if is_odd else part
            parts[at] = ""
        return found if parts == self._others else None
