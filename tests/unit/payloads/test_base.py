"""Names of files, and what a value looks like that could not be had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import BadFileName
from regista.payloads.base import (
    MARK,
    FetchFailure,
    UnfetchedValue,
    broken,
    check_name,
    claim_owner,
    difference,
    is_own,
    job_prefix,
    owner_of,
    record_prefix,
)
from regista.payloads.memory import MemoryPayloads


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
    why = FetchFailure("integrity_error", "another checksum", True)

    assert broken({}, {"a": 1}, [MARK], "text", None, {MARK: UnfetchedValue({})}) is None
    assert broken({}, {MARK: UnfetchedValue({}, why)}) == why


@pytest.mark.parametrize(
    "mark", [1, None, {}, {"whole": {}}, {"broken": 5}, {"broken": [1]}, {"broken": ["a", "b", True]}]
)
def test_no_value_that_somebody_can_send_is_taken_for_one_that_could_not_be_had(mark: object) -> None:
    assert broken({MARK: mark}) is None


@pytest.mark.parametrize("digest", ["../x", "", "a" * 63, "A" * 64, "a" * 64 + "\n", "a" * 63 + "/"])
def test_a_reference_without_a_checksum_of_ours_leads_nowhere(digest: str) -> None:
    def whole(named: str) -> object:
        return {MARK: {"whole": {"path": f"records/j1/{named}", "sha256": named, "size": 5}}}

    assert is_own("j1", whole("a" * 64))
    assert not is_own("j2", whole("a" * 64))
    assert not is_own("j1", whole(digest))


async def test_a_store_without_an_owner_becomes_that_of_whoever_claims_it_first() -> None:
    store = MemoryPayloads()
    assert await owner_of(store) == ""

    assert await claim_owner(store, "one") == "one"
    assert await claim_owner(store, "two") == "one"
    assert await owner_of(store) == "one"


def test_two_stores_of_one_owner_are_the_same_and_all_others_are_named() -> None:
    assert difference("file:///here", "one", "file:///there", "one") == ""

    never = difference("file:///here", "", "file:///there", "one")
    assert never.startswith(
        "expected the payload store of the orchestrator (file:///there), got file:///here,"
    )
    assert "never used by any orchestrator" in never
    assert "is that of cluster two" in difference("file:///here", "two", "file:///there", "one")
