"""Data folders that only their owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from threadfold.embedded.folder import DataFolder, make_private, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with DataFolder(tmp_path / "data") as folder:
            assert mode(folder.path) == 0o700
            assert folder.note == ""
            assert mode(folder.path / "threadfold.lock") == 0o600
    finally:
        os.umask(before)


def test_folder_that_others_could_read_is_closed_and_that_is_noted_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with DataFolder(data) as folder:
        assert mode(data) == 0o700
        assert folder.note == (
            f"other users could read {data} (mode 755); now only its owner can (mode 700)"
        )
    with DataFolder(data) as again:
        assert again.note == ""


def test_folder_that_many_users_share_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert "is shared with other users" in make_private(shared)
    assert mode(shared) == 0o1777
    assert make_private(shared / "stack") == ""
    assert mode(shared / "stack") == 0o700


def test_folder_with_folders_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    project.chmod(0o755)
    with DataFolder(project, own=["stack"]) as folder:
        assert "has folders of other programs" in folder.note
    assert mode(project) == 0o755


def test_private_file_replaces_one_that_others_could_read(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert (file.read_text(), mode(file)) == ("new", 0o600)
