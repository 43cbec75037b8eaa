from typing import Annotated, Literal

import msgspec
import pytest

from regista.api.bodies import parse
from regista.api.problems import Problem
from regista.model import JobStatus
from regista.schemas.jobs import JobRequest


class Part(msgspec.Struct):
    status: JobStatus | None = None
    letter: Annotated[str, msgspec.Meta(pattern="^a$", description="the letter a")] | None = None
    bare: Annotated[str, msgspec.Meta(pattern="^b$")] = "b"
    size: Literal["small", "large"] = "small"


class Whole(msgspec.Struct):
    part: Part
    parts: list[Part] = []
    named: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"part": {"status": "odd"}}, "part.status: expected one of pending, running, "),
        ({"part": {"status": "odd"}}, ", got 'odd'"),
        ({"part": {"size": "huge"}}, "part.size: expected one of large, small, got 'huge'"),
        (
            {"part": {}, "parts": [{"letter": "b"}]},
            "parts[0].letter: expected the letter a, got something else",
        ),
        ({"part": {}, "named": {"x": {"letter": "b"}}}, "named[...].letter: expected the letter a"),
        ({"part": {"bare": "x"}}, "Expected `str` matching regex '^b$' - at `$.part.bare`"),
        ({"part": 3}, "Expected `object`, got `int` - at `$.part`"),
    ],
)
def test_a_refusal_names_the_choices_and_says_what_a_pattern_is_for(
    body: dict[str, object], words: str
) -> None:
    with pytest.raises(Problem) as refused:
        parse(msgspec.json.encode(body), Whole)

    assert refused.value.code == "invalid_body"
    assert words in refused.value.detail


def test_a_webhook_that_is_no_url_is_told_without_a_pattern() -> None:
    with pytest.raises(Problem, match="webhook_url: expected an http or https URL, like https://"):
        parse(b'{"blueprint": "b", "webhook_url": "nowhere"}', JobRequest)
