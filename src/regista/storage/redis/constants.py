"""Constants: numbers that have a name in the Lua files, written out before a script is sent.

Lua knows no constants. Each would be a variable that every function made after it carries along, and a script makes all its
functions anew with every call: of what a small commit costs the server, that was a fifth.
"""

import re

#: `local FIRST, SECOND = 1, 2`: names in capitals, and whole numbers.
_DEFINITION = re.compile(
    r"^ *local ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) =\s+(\d+(?:, \d+)*)$", re.MULTILINE
)
#: A name in capitals; or what only looks like one: a text, or a comment.
_NAME = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|--[^\n]*|\b[A-Z][A-Z0-9_]*\b")


def constants_in(text: str) -> dict[str, str]:
    """The constants that a Lua text defines."""
    return {
        name: value
        for names, values in _DEFINITION.findall(text)
        for name, value in zip(names.split(", "), values.split(", "), strict=True)
    }


def written_out(text: str, constants: dict[str, str]) -> str:
    """The text with numbers in the place of these names. Lines keep their places, for the sake of error messages."""
    text = _DEFINITION.sub(lambda found: "\n" * found[0].count("\n"), text)
    return _NAME.sub(lambda found: constants.get(found[0], found[0]), text)
