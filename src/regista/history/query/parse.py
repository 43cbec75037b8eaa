"""From text to raw nodes: what was written, and where. Whether it makes sense is for `check` to say."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BadQuery

#: Characters of a query, and how deep it may be nested.
MAX_LENGTH, MAX_DEPTH = 10_000, 50


class Word(NamedTuple):
    """A name, and where it stands."""

    text: str
    at: int


class Literal(NamedTuple):
    """A value, as it was written and as it was meant, and where it stands."""

    value: str | int | float | bool
    text: str
    at: int


class RawTest(NamedTuple):
    """A test of one field."""

    kind: str
    name: Word
    values: tuple[Literal, ...] = ()
    operator: str = ""
    negated: bool = False
    depth: int = 1


class RawGroup(NamedTuple):
    """`both`, `either` or `negated` of others."""

    kind: str
    of: tuple[Any, ...]
    depth: int


class RawKey(NamedTuple):
    """A field to sort by."""

    name: Word
    descending: bool


class RawQuery(NamedTuple):
    """All of it."""

    where: RawTest | RawGroup | None
    order: tuple[RawKey, ...]


def parse(text: str) -> RawQuery:
    """What the text says, or BadQuery: where, what was expected, what was found."""
    if len(text) > MAX_LENGTH:
        raise BadQuery(MAX_LENGTH, f"at most {MAX_LENGTH:,} characters", f"{len(text):,}")
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        found: Any = _parser().parse(text)
    except UnexpectedCharacters as error:
        at: Any = error.pos_in_stream
        raise _strange_character(text, at, error.allowed) from None
    except UnexpectedToken as error:
        raise _strange_word(text, error.token, error.expected) from None
    query: RawQuery = found
    return query


def warm() -> None:
    """Make the parser now: a tenth of a second that no loop should be held for."""
    _parser()


@lru_cache(maxsize=1)
def _parser() -> Any:
    """Made at the first search: neither the library nor the tables cost a start anything."""
    from lark import Lark, Transformer

    class Builder(Transformer[Any, Any]):
        """Nodes as soon as their text is read."""

        def start(self, of: list[Any]) -> RawQuery:
            return RawQuery(of[0], of[1] or ())

        def order(self, of: list[Any]) -> tuple[RawKey, ...]:
            return tuple(each for each in of if isinstance(each, RawKey))

        def key(self, of: list[Any]) -> RawKey:
            return RawKey(of[0], of[1] is not None and of[1].type == "DESC")

        def name(self, of: list[Any]) -> Word:
            return Word(str(of[0]).strip("`"), of[0].start_pos)

        def literal(self, of: list[Any]) -> Literal:
            return Literal(_value(of[0].type, str(of[0])), str(of[0]), of[0].start_pos)

        def compare(self, of: list[Any]) -> RawTest:
            return RawTest("compare", of[0], (of[2],), str(of[1]))

        def between(self, of: list[Any]) -> RawTest:
            return _test("between", of)

        def among(self, of: list[Any]) -> RawTest:
            return _test("among", of)

        def starts(self, of: list[Any]) -> RawTest:
            return _test("starts", of)

        def like(self, of: list[Any]) -> RawTest:
            return _test("like", of)

        def missing(self, of: list[Any]) -> RawTest:
            return _test("missing", of)

        def both(self, of: list[Any]) -> RawGroup:
            return _group("both", of)

        def either(self, of: list[Any]) -> RawGroup:
            return _group("either", of)

        def negated(self, of: list[Any]) -> RawGroup:
            return _group("negated", of)

    grammar = Path(__file__).with_name("grammar.lark").read_text()
    return Lark(grammar, parser="lalr", transformer=Builder(), maybe_placeholders=True)


def _test(kind: str, of: list[Any]) -> RawTest:
    values = tuple(each for each in of if isinstance(each, Literal))
    negated = any(getattr(each, "type", "") == "NOT" for each in of)
    return RawTest(kind, of[0], values, negated=negated)


def _group(kind: str, of: list[Any]) -> RawGroup:
    parts = tuple(each for each in of if isinstance(each, RawTest | RawGroup))
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise BadQuery(0, f"at most {MAX_DEPTH} conditions inside each other", "more")
    return RawGroup(kind, parts, depth)


def _value(kind: str, text: str) -> str | int | float | bool:
    if kind == "STRING":
        quote = text[0]
        return re.sub(rf"\\([\\'\"])|({quote}){quote}", lambda found: found[1] or found[2], text[1:-1])
    if kind == "NUMBER":
        return int(text) if re.fullmatch(r"[-+]?\d{1,40}", text) else float(text)
    return text.lower() == "true"


#: What the parser waits for, in words; in the order in which they are told.
_WORDS = {
    "NAME": "an attribute",
    "QUOTED": "",
    "COMPARE": "an operator (= != < <= > >= IN BETWEEN STARTS_WITH IS NULL)",
    **dict.fromkeys(("IN", "BETWEEN", "STARTS_WITH", "LIKE", "IS"), ""),
    "STRING": "a value (text in quotes, a number, true or false)",
    **dict.fromkeys(("NUMBER", "TRUE", "FALSE"), ""),
    "NOT": "NOT",
    "NULL": "NULL",
    "AND": "AND",
    "OR": "OR",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "ORDER": "ORDER BY",
    "BY": "BY",
    "ASC": "ASC",
    "DESC": "DESC",
    "$END": "the end",
}


def _expected(names: Any) -> str:
    told = [words for name, words in _WORDS.items() if name in names and words]
    if "COMPARE" in names:
        told = told[:1]  # NOT IN and the like: the operators say it; the rest is for names in ORDER BY
    if not told:
        told = ["IN", "BETWEEN", "STARTS_WITH", "LIKE"]
    return " or ".join((", ".join(told[:-1]), told[-1])) if len(told) > 1 else "".join(told)


def _strange_word(text: str, token: Any, expected: Any) -> BadQuery:
    at = len(text) if token.type == "$END" else token.start_pos
    found = "the end" if token.type == "$END" else f"{str(token)[:40]!r}"
    hint = ""
    if "STRING" in expected and token.type == "NAME":
        found = str(token)[:40]  # as it stands there: without quotes
        hint = f"did you mean '{found}'? Text stands in quotes"
    elif "STRING" in expected and str(token) == "=":
        hint = "one = is enough"
    return BadQuery(at, _expected(expected), found, hint)


def _strange_character(text: str, at: int, expected: Any) -> BadQuery:
    found = text[at]
    if found in "'\"`":
        return BadQuery(at, f"a closing {found}", "the end", f"inside of quotes, {found} is written twice")
    hints = {"&": "AND is written out", "|": "OR is written out", "!": "write NOT, or !="}
    return BadQuery(at, _expected(expected or ()), repr(found), hints.get(found, ""))
