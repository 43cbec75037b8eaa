from pathlib import Path

from regista.cli.dev import stamps


def test_a_change_a_removal_and_a_return_can_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("x = 1\n")
    before = stamps([file])
    assert stamps([file]) == before

    file.write_text("x = 10\n")
    changed = stamps([file])
    assert changed != before

    file.unlink()
    assert stamps([file]) not in (before, changed)
