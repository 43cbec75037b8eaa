"""What may come in: plain data, in bounds. What hostile handlers and workers make of it is in engines/test_hostile.py."""

import pytest

from regista.errors import NotPlain
from regista.plain import MAX_WORDS, plain_dict, plain_text, words


def test_no_dict_is_an_empty_one() -> None:
    assert plain_dict(None, "data") == plain_dict({}, "data") == {}


def test_what_no_store_can_keep_is_refused_by_its_name() -> None:
    with pytest.raises(NotPlain, match="data"):
        plain_dict({"far": 2**64}, "data")
    with pytest.raises(NotPlain, match="reason"):
        plain_text(7, "reason")


def test_words_never_raise_and_are_cut() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    assert "Mute" in words(Mute())
    assert words("\udc80") == "\\udc80"
    assert len(words("x" * 2 * MAX_WORDS)) == MAX_WORDS
