import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: Sections of each source document: how many rows its table must have.
SECTIONS = {"000, 001, 003": 39, "002": 20, "004": 26}


class Row(NamedTuple):
    document: str
    sections: list[str]
    where: list[str]
    proof: list[str]
    state: str


def rows() -> list[Row]:
    found = []
    document = ""
    for line in (ROOT / "docs" / "source-map.md").read_text().splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ").partition(":")[0]
        if line.startswith("| ") and "| State |" not in line:
            *sections, where, proof, state, _ = (cell.strip() for cell in line.strip().strip("|").split("|"))
            paths = [re.findall(r"`([^`]+)`", cell) for cell in (where, proof)]
            found.append(Row(document, sections, paths[0], paths[1], state))
    return found


def test_every_section_has_its_row() -> None:
    counted = {document: sum(row.document == document for row in rows()) for document in SECTIONS}

    assert counted == SECTIONS
    assert all(all(row.sections) for row in rows())


def test_every_row_says_where_and_in_what_state() -> None:
    wrong = [row for row in rows() if row.state not in {"done", "planned"} or not row.where]

    assert wrong == []


def test_what_is_done_is_there_with_its_proof() -> None:
    done = [row for row in rows() if row.state == "done"]
    missing = {path for row in done for path in [*row.where, *row.proof] if not (ROOT / path).exists()}

    assert missing == set()
    assert [row.sections for row in done if not row.proof] == []
