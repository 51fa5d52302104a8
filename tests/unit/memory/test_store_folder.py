"""One store of a folder counts; another takes its place in one step, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from projections.errors import DataFolderInUse, InvalidSettings, MemoryUnavailable
from streams.memory.store_faults import try_folder
from streams.memory.store_folder import StoreFolder


def files(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir() if one.suffix == ".db")


def built(folder: StoreFolder) -> Path:
    with folder.building() as path:
        path.write_bytes(b"a store")
    return path


def test_who_holds_a_folder_first_makes_its_store_and_is_alone(tmp_path: Path) -> None:
    one, other = StoreFolder(tmp_path / "m"), StoreFolder(tmp_path / "m")
    assert one.live is None
    assert one.hold() and one.hold() and not other.hold()
    assert one.live == other.live == tmp_path / "m" / "memories-1.db"
    one.close()
    assert other.hold()
    other.close()
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_deleted_is_made_again_and_one_process_holds_it(tmp_path: Path) -> None:
    one, other = StoreFolder(tmp_path / "m"), StoreFolder(tmp_path / "m")
    assert one.hold()
    shutil.rmtree(tmp_path / "m")
    assert one.hold() and not other.hold() and one.live is not None
    shutil.rmtree(tmp_path / "m")
    assert other.hold() and other.live == tmp_path / "m" / "memories-1.db"
    one.close()
    other.close()
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("left", ["", "memor", "memories-1.lance"])
def test_a_folder_whose_live_store_is_not_named_any_more_gets_a_new_one(
    tmp_path: Path, left: str
) -> None:
    (tmp_path / "live").write_text(left)
    (tmp_path / "memories-3.db").write_bytes(b"a store")
    folder = StoreFolder(tmp_path)
    assert folder.live is None and folder.hold()
    assert folder.live == tmp_path / "memories-4.db"
    folder.close()


def test_a_built_store_becomes_the_live_one_and_the_former_goes(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path)
    first = built(folder)
    assert folder.live == first
    second = built(folder)
    assert folder.live == second and files(tmp_path) == [second.name]


def test_the_former_store_stays_for_the_process_that_holds_the_folder(tmp_path: Path) -> None:
    holder, builder = StoreFolder(tmp_path), StoreFolder(tmp_path)
    assert holder.hold() and holder.live is not None
    holder.live.write_bytes(b"in use")
    former, new = holder.live, built(builder)
    assert holder.live == new and former.exists()
    holder.tidy()
    assert files(tmp_path) == [new.name]
    holder.close()


def test_a_build_that_fails_or_is_killed_leaves_the_live_store(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path)
    live = built(folder)
    with pytest.raises(ValueError, match="half"), folder.building() as path:
        path.write_bytes(b"half")
        raise ValueError("half")
    assert folder.live == live and files(tmp_path) == [live.name]
    if (pid := os.fork()) == 0:
        with folder.building() as path:
            path.write_bytes(b"half")
            os._exit(9)
    os.waitpid(pid, 0)
    assert folder.live == live and len(files(tmp_path)) == 2
    assert built(folder) == folder.live and len(files(tmp_path)) == 1


def test_what_a_killed_build_left_goes_and_what_is_being_built_stays(tmp_path: Path) -> None:
    holder, builder = StoreFolder(tmp_path), StoreFolder(tmp_path)
    assert holder.hold() and holder.live is not None
    holder.live.write_bytes(b"in use")
    if (pid := os.fork()) == 0:
        with builder.building() as path:
            path.write_bytes(b"half")
            path.with_name(f"{path.name}-texts").write_bytes(b"half")
            os._exit(9)
    os.waitpid(pid, 0)
    holder.tidy()
    assert [one.name for one in tmp_path.glob("memories-*")] == [holder.live.name]
    with builder.building() as path:
        path.write_bytes(b"half")
        holder.tidy()
        assert path.exists()
    holder.close()


def test_two_builds_at_once_are_refused(tmp_path: Path) -> None:
    with (
        StoreFolder(tmp_path).building(),
        pytest.raises(DataFolderInUse, match="another process builds"),
        StoreFolder(tmp_path).building(),
    ):
        pass


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="setting 'memory_store'"):
        StoreFolder(tmp_path / "file" / "m")


def test_what_keeps_a_folder_from_being_held_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    folder = StoreFolder(tmp_path / "m")
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for hold in (folder.hold, folder.hold_turns):
            with pytest.raises(MemoryUnavailable) as raised:
                hold()
            assert raised.value.cause == (
                "its folder cannot be read or written (Read-only file system)"
            )
    assert folder.hold()
    folder.close()


def test_a_file_in_the_place_of_a_folder_is_named_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = StoreFolder(tmp_path / "m")
    (tmp_path / "m").rmdir()
    (tmp_path / "m").write_text("")
    for _ in range(2):
        with pytest.raises(MemoryUnavailable, match="a file is in the place of its folder"):
            folder.hold()
    assert folder.live is None and not caplog.records


def test_a_folder_is_tried_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    try_folder(tmp_path)
    try_folder(tmp_path / "none" / "yet")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MemoryUnavailable) as raised:
        try_folder(tmp_path)
    assert raised.value.with_folder == f"the disk of {tmp_path} is full"
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "m"):
        with pytest.raises(MemoryUnavailable, match="a file is in the place"):
            try_folder(path)
