"""What may come in: plain data, in bounds. What hostile handlers and workers make of it is in engines/test_hostile.py."""

import pytest

from regista.errors import NotSerializable
from regista.serialization import MAX_TEXT_CHARS, safe_text, to_storable_dict, to_storable_text


def test_no_dict_is_an_empty_one() -> None:
    assert to_storable_dict(None, "data") == to_storable_dict({}, "data") == {}


def test_what_no_store_can_keep_is_refused_by_its_name() -> None:
    with pytest.raises(NotSerializable, match="data"):
        to_storable_dict({"far": 2**64}, "data")
    with pytest.raises(NotSerializable, match="reason"):
        to_storable_text(7, "reason")


def test_words_never_raise_and_are_cut() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    assert "Mute" in safe_text(Mute())
    assert safe_text("\udc80") == "\\udc80"
    assert len(safe_text("x" * 2 * MAX_TEXT_CHARS)) == MAX_TEXT_CHARS
