"""Names of files, and what a value looks like that could not be had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import BadFileName
from regista.payloads.base import MARK, Broken, broken, check_name, job_prefix, record_prefix


@given(st.text(max_size=60))
def test_a_name_that_passes_stays_below_its_folder_whatever_it_is(name: str) -> None:
    try:
        checked = check_name(name)
    except BadFileName:
        return
    parts = f"jobs/j1/{checked}".split("/")
    assert parts[:2] == ["jobs", "j1"]
    assert len(parts) > 2
    assert not {"", ".", ".."} & set(parts)
    assert checked == name
    assert "\\" not in name
    assert checked.encode().decode() == name


@pytest.mark.parametrize("name", [None, 5, b"a", ["a"]])
def test_only_text_is_a_name(name: object) -> None:
    with pytest.raises(BadFileName, match="expected a non-empty str"):
        check_name(name)


def test_the_refusal_says_what_was_expected_and_what_came() -> None:
    with pytest.raises(BadFileName) as refused:
        check_name("a/../b")

    assert str(refused.value) == (
        "expected the name of a file of this job, like frames/001.png, got 'a/../b': a part of it is empty, . or .."
    )


def test_an_id_is_one_folder() -> None:
    assert (job_prefix("j1"), record_prefix("j1")) == ("jobs/j1", "records/j1")
    for job_id in ("", "a/b", "..", "a\x00"):
        with pytest.raises(BadFileName):
            job_prefix(job_id)


def test_a_value_that_could_not_be_had_says_why() -> None:
    told = {MARK: {"broken": ["integrity_error", "another checksum", True]}}

    assert broken({}, {"a": 1}, [MARK], "text", None) is None
    assert broken({}, told) == Broken("integrity_error", "another checksum", True)


@pytest.mark.parametrize("mark", [1, None, {}, {"whole": {}}])
def test_a_reference_that_nobody_has_followed_says_that_there_is_no_store(mark: object) -> None:
    why = broken({MARK: mark})

    assert why is not None
    assert (why.code, why.permanent) == ("payloads_disabled", True)
