"""Escaping of text from others: a terminal shows it, and never obeys it."""

import re

#: Characters that do something instead of being seen: C0 but tab and line feed, DEL and C1, what turns the
#: direction of text, breaks or hides it, and lone surrogates, which no stream can encode. Joiners (U+200C, U+200D) are
#: not among them: Persian and emoji are written with them, and they move nothing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAKS = {ord("\n"): "\\n", ord("\t"): "\\t"}


def escape_control_chars(text: str, *, one_line: bool = False) -> str:
    """The text with every character that a terminal would obey written out, as Python writes it.

    Line feeds and tabs stay, unless it must be one line: a cell of a table must not make up a row. A second call
    changes nothing.
    """
    seen = _UNSEEN.sub(lambda found: _written(found[0]), text)
    return seen.translate(_BREAKS) if one_line else seen


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode()


def escape_json(text: str) -> str:
    """The same for JSON, as JSON writes it: the document means what it meant before."""
    return _UNSEEN.sub(lambda found: _written_in_json(found[0]), text)


def _written_in_json(character: str) -> str:
    # Outside of strings JSON has none of them; inside, each may be written by its UTF-16 units.
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
