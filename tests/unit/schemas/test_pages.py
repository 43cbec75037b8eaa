from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.schemas.pages import BadPageToken, decode_position, encode_position


@given(moment=st.integers(-(2**63), 2**63 - 1), job_id=st.text())
def test_a_place_survives_its_word_and_the_word_is_safe_in_a_url(moment: int, job_id: str) -> None:
    token = encode_position((moment, job_id))

    assert decode_position(token, tuple[int, str]) == (moment, job_id)
    assert all(sign.isalnum() or sign in "-_" for sign in token)


@given(st.text())
def test_any_other_word_is_refused_and_never_more_than_that(word: str) -> None:
    with suppress(BadPageToken):
        place = decode_position(word, tuple[int, str])
        assert decode_position(encode_position(place), tuple[int, str]) == place


def test_a_word_of_another_list_is_refused() -> None:
    with pytest.raises(BadPageToken):
        decode_position(encode_position(7), tuple[int, str])
