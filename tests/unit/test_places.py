from pathlib import Path

from regista.places import Places, lock_of, real, wal_of


def test_a_file_is_known_by_what_it_is_and_not_by_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("before")
    places = Places(path)
    path.write_text("after")
    assert places.moved() is None
    path.write_text("")
    assert places.moved() == f"{path} is empty by now"

    path.rename(tmp_path / "elsewhere")
    assert places.moved() == f"{path} is gone"
    path.write_text("after")
    assert places.moved() == f"{path} is another file by now"
    (tmp_path / "elsewhere").replace(path)
    path.write_text("again")
    assert places.moved() is None


def test_a_wal_and_a_lock_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("something")
    wal_of(path).touch()
    lock_of(path).touch()
    with lock_of(path).open() as owner:
        places = Places(path, owner.fileno())
        assert places.moved() is None
        wal_of(path).unlink()
        assert places.moved() == f"{path}-wal is gone"
        wal_of(path).touch()
        lock_of(path).unlink()
        assert "jobs.db" in (places.moved() or "")


def test_what_belongs_to_a_link_lies_beside_what_it_leads_to(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "there.db")
    assert real(link) == tmp_path.resolve() / "there.db"
    assert real(tmp_path / "there.db") == tmp_path / "there.db"
