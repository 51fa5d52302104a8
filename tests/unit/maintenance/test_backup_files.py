"""Backups that follow one another: which make a whole one together."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.errors import InvalidBackup
from streams.maintenance.backup_files import (
    FORM,
    PARTIAL,
    SAVED,
    Backup,
    Manifest,
    Previous,
    SavedPartition,
    beginning_offsets,
    load_manifest,
    read_chain,
    write_manifest,
)


def backup(folder: Path, name: str, after: Backup | None = None) -> Backup:
    """An empty backup that follows another."""
    made = folder / name
    made.mkdir()
    previous = None if after is None else Previous(after.folder.name, after.sha256)
    form = FORM if after is None else PARTIAL
    write_manifest(made, Manifest(form, f"of-{name}", {topic: [] for topic in SAVED}, {}, previous))
    return load_manifest(made)


def names(chain: list[Backup]) -> list[str]:
    return [one.folder.name for one in chain]


def test_the_last_one_finds_those_beside_it_and_all_can_be_named_in_any_order(
    tmp_path: Path,
) -> None:
    first = backup(tmp_path, "first")
    second = backup(tmp_path, "second", first)
    third = backup(tmp_path, "third", second)
    whole = ["first", "second", "third"]
    assert names(read_chain([third.folder])) == whole
    assert names(read_chain([third.folder, first.folder, second.folder])) == whole
    assert names(read_chain([second.folder])) == whole[:2]


def test_one_that_is_lost_is_named_and_those_before_it_are_whole(tmp_path: Path) -> None:
    first = backup(tmp_path, "first")
    second = backup(tmp_path, "second", first)
    third = backup(tmp_path, "third", second)
    away = tmp_path / "elsewhere"
    away.mkdir()
    second.folder.rename(away / "second")
    with pytest.raises(
        InvalidBackup, match=r"third follows the backup second, which is not beside"
    ):
        read_chain([third.folder])
    # Only the last one's neighbours are looked for beside it: here the first is beside the third.
    assert names(read_chain([third.folder, away / "second", first.folder])) == [
        "first",
        "second",
        "third",
    ]
    assert names(read_chain([first.folder])) == ["first"]


def test_another_backup_of_the_same_name_does_not_do(tmp_path: Path) -> None:
    first = backup(tmp_path, "first")
    second = backup(tmp_path, "second", first)
    write_manifest(first.folder, Manifest(FORM, "other", {name: [] for name in SAVED}, {}))
    with pytest.raises(InvalidBackup, match=r"second follows the backup first, and .* is another"):
        read_chain([second.folder])


def test_backups_of_two_chains_are_refused(tmp_path: Path) -> None:
    first = backup(tmp_path, "first")
    others = [backup(tmp_path, name, first) for name in ("one", "two")]
    with pytest.raises(InvalidBackup, match="do not follow one another"):
        read_chain([other.folder for other in others])


def test_a_form_of_a_later_release_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest(3, "t", {name: [] for name in SAVED}, {}))
    with pytest.raises(InvalidBackup, match=r"is of form 3 .* does not know it"):
        read_chain([tmp_path])


def test_a_manifest_that_is_no_text_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b'{"topic_prefix": "\xff"}')
    with pytest.raises(InvalidBackup, match=r"manifest\.json cannot be read"):
        load_manifest(tmp_path)


def of_summaries(*extents: tuple[int, int]) -> Backup:
    """A backup that covers these offsets of the partitions of summaries."""
    saved = [SavedPartition("f", first, end, 0, "", "") for first, end in extents]
    return Backup(Path("b"), Manifest(FORM, "t", {"summaries": saved}, {}))


def test_a_partition_began_where_its_first_backup_begins_unless_more_was_lost_until_the_next() -> (
    None
):
    whole, lost, later = (0, 9), (4, 9), (9, 12)
    assert beginning_offsets([of_summaries(whole, lost, (9, 9))], "summaries") == {1: 4, 2: 9}
    chain = [of_summaries(whole, lost, (5, 5)), of_summaries(later, later, (7, 8))]
    assert beginning_offsets(chain, "summaries") == {1: 4, 2: 7}
    # Nothing but the marks of a transaction was there.
    assert beginning_offsets([of_summaries((0, 2)), of_summaries((2, 5))], "summaries") == {}
