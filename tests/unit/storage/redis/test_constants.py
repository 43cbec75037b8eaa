import re

import pytest

from regista.storage.redis.constants import constants_in, written_out
from regista.storage.redis.scripts import COMMON, NAMES, SHARED, source_of, text_of

LUA = """-- FIRST: not this one.
local FIRST, SECOND =
  1, 20
local P = KEYS[1]
do
  local THIRD = 3
  call('FIRST', "SECOND", row[FIRST], SECOND + THIRD) -- the SECOND
end
"""


def test_names_of_numbers_are_constants_and_others_are_not() -> None:
    assert constants_in(LUA) == {"FIRST": "1", "SECOND": "20", "THIRD": "3"}


def test_constants_are_written_out_but_for_texts_and_comments_and_lines_keep_their_places() -> None:
    lines = written_out(LUA, constants_in(LUA)).split("\n")
    assert lines[0] == "-- FIRST: not this one."
    assert lines[3] == "local P = KEYS[1]"
    assert lines[6].strip() == "call('FIRST', \"SECOND\", row[1], 20 + 3) -- the SECOND"
    assert len(lines) == len(LUA.split("\n"))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_one_number_in_all_files_of_a_script(name: str) -> None:
    seen: dict[str, str] = {}
    for part in (*COMMON, *SHARED.get(name, ()), name):
        for names, values in re.findall(r"local ([A-Z_, ]+) =\s+([\d, ]+)\n", source_of(part)):
            for constant, value in zip(names.split(", "), values.split(", "), strict=True):
                assert seen.setdefault(constant, value) == value
    left = set(re.findall(r"\b[A-Z_]{2,}\b", _code(text_of(*COMMON, *SHARED.get(name, ()), name))))
    assert not left & set(seen)


def _code(text: str) -> str:
    return re.sub(r"'[^'\n]*'|--[^\n]*", "", text)
