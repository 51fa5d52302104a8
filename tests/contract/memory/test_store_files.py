"""A store of memories in files is opened again as it was, copied, fed anew where it is damaged, and
keeps nothing that must go.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from projections.errors import Healing, MemoryUnavailable
from projections.events.memories import MemoryTags
from projections.memory.news import LogErased, News
from projections.memory.words import stems_of, tag_word
from projections.names import Key
from streams.memory import wipes
from streams.memory.sqlite_index import remove
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import LocalStore
from streams.runtime.process_pool import WorkerLost
from streams.runtime.steps import at_once
from tests.support.local_stores import contents
from tests.support.memory_news import ACME, C1, C2, feed, said, texts


def test_it_is_opened_again_as_it_was(local: Callable[..., LocalStore]) -> None:
    first = local()
    first.apply([said(1, "Likes tea.")], {0: 7})
    first.apply([said(2, "Likes gin.")], {1: 3})
    digests = first.digests()
    first.close()
    again = local()
    assert again.digests() == digests and again.checkpoints() == {0: 7, 1: 3}
    assert texts(again, "gin") == ["Likes gin."]
    again.close()


def test_a_file_of_another_form_is_fed_anew(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    path.write_bytes(b"no database at all, but something else of some length" * 20)
    other = SqliteMemories(path)
    assert other.checkpoints() == {}
    other.close()


def test_a_file_that_lacks_a_part_is_fed_anew(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    SqliteMemories(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE unmerged")
    again = SqliteMemories(path)
    feed(again, said(1, "Likes tea."))
    assert texts(again, "tea") == ["Likes tea."]
    again.close()


def test_text_that_must_go_leaves_every_part_of_a_grown_index(
    local: Callable[..., LocalStore],
) -> None:
    store = local()
    for n in range(0, 400, 4):
        words = [said(n + i, f"Fact {n + i} of many words.", C2) for i in range(4)]
        feed(store, *words, said(n, f"Hides marmalade {n}."))
    assert store.path is not None
    assert any(b"armalad" in content for content in contents(store.path))
    feed(store, LogErased(C1))
    assert len(texts(store, "fact")) == 10
    store.close()
    assert not any(b"armalad" in content for content in contents(store.path))


def files_with(folder: Path, text: bytes) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text in path.read_bytes()]


def say_and_erase(store: LocalStore, at: int) -> None:
    log = Key("acme", f"c-{at}")
    store.apply([said(at, f"Hides marmalade{at}.", log)], {})
    store.apply([LogErased(log)], {0: at})


def test_files_are_not_rewritten_again_and_again_for_erasures_that_follow_each_other(
    local: Callable[..., LocalStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wipes, "SHARE", 1e-6)
    store = local()
    say_and_erase(store, 1)
    assert not files_with(tmp_path, b"armalade1"), "the first at once"
    for at in range(2, 6):
        say_and_erase(store, at)
        assert texts(store, f"marmalade{at}") == []
    store.tidy()
    assert files_with(tmp_path, b"armalade")
    store.close()
    assert not files_with(tmp_path, b"armalade"), "at the latest when it is closed"


def test_what_was_erased_after_another_leaves_the_files_without_further_news(
    local: Callable[..., LocalStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wipes, "SHARE", 0.2)
    store = local()
    for at in range(1, 6):
        say_and_erase(store, at)
    deadline = time.monotonic() + 60
    while files_with(tmp_path, b"armalade"):
        assert time.monotonic() < deadline
        store.tidy()
    store.close()


def test_a_built_store_lasts_and_a_copy_goes_its_own_way(
    local: Callable[..., LocalStore], tmp_path: Path
) -> None:
    built = local(building=True)
    assert built.path is not None
    built.apply([said(1, "Likes tea."), said(2, "Likes gin.")], {0: 7})
    built.finish()
    copy = type(built).copied(built.path)
    assert copy is not None
    built.apply([LogErased(C1)], {0: 8})
    assert [one.text for one in at_once(copy.page(ACME, None, 10))] == ["Likes gin.", "Likes tea."]
    assert texts(copy, "tea") == ["Likes tea."]
    assert (copy.checkpoints(), built.checkpoints()) == ({0: 7}, {0: 8})
    copy.adopt(built)
    assert at_once(copy.page(ACME, None, 10)) == [] and copy.checkpoints() == {0: 8}
    copy.close()
    again = local()
    assert again.checkpoints() == {0: 8} and texts(again, "tea") == []
    assert type(built).copied(tmp_path / "none") is None
    again.close()


def test_a_built_store_finds_what_one_finds_that_was_fed_and_keeps_nothing_that_went(
    local: Callable[..., LocalStore],
) -> None:
    built, fed = local(building=True), local("fed")
    batches: list[list[News]] = [
        [said(n, f"Fact {n % 9} of {'tea' if n % 2 else 'gin'}.") for n in range(start, start + 20)]
        for start in range(0, 100, 20)
    ]
    batches[1] += [said(200 + n, f"Hides marmalade {n}.", C2) for n in range(9)]
    batches[2] += [said(300, "Fact 3 of tea.", tags=MemoryTags(tool=["kettle"]))]
    batches[3] += [LogErased(C2), said(209, "Hides marmalade late.", C2)]
    for number, batch in enumerate(batches):
        for store in (built, fed):
            store.apply(batch, {0: number})
    built.finish()
    assert built.digests() == fed.digests() and built.checkpoints() == {0: 4}
    for query in ("tea", "fact 3", "gin fact", "marmalade"):
        found, other = (
            [(hit.record, hit.score) for hit in store.search(ACME, stems_of(query), 50)]
            for store in (built, fed)
        )
        assert found == other and (query == "marmalade") == (found == [])
    (hit,) = built.search(ACME, [tag_word("tool", "kettle")], 50)
    assert hit.record.text == "Fact 3 of tea."
    for store in (built, fed):
        feed(store, said(400, "Fact 3 of rum."), LogErased(C2))
        assert texts(store, "rum") == ["Fact 3 of rum."]
    assert built.path is not None
    path = built.path
    assert not path.with_name(f"{path.name}-texts").exists()
    built.close()
    fed.close()
    assert not any(b"armalad" in content for content in contents(path))


def test_a_build_whose_other_process_ended_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(active_children())
    store = SqliteMemories(tmp_path / "memories.db", building=True)
    store.apply([said(1, "Likes tea.")], {0: 1})
    (other,) = set(active_children()) - before
    other.kill()
    other.join()
    with pytest.raises(WorkerLost, match="ended: build it again"):
        for n in range(2, 9):
            store.apply([said(n, f"Fact {n}.")], {0: n})
    store.close()
    assert list(tmp_path.glob("*-texts*")) == []


def test_another_store_takes_the_place_of_one_whose_file_was_deleted(
    local: Callable[..., LocalStore],
) -> None:
    store, other = local(), local("other")
    assert store.path is not None
    store.apply([said(1, "Likes tea.")], {0: 1})
    other.apply([said(1, "Likes tea."), said(2, "Likes gin.")], {0: 2})
    digests, gone = other.digests(), store.path
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        remove(gone)
    store.adopt(other)
    assert store.digests() == digests and not gone.exists()
    store.close()


def test_another_store_takes_the_place_of_one_whose_file_is_damaged(
    local: Callable[..., LocalStore],
) -> None:
    store, other = local(), local("other")
    store.apply([said(1, "Likes tea.")], {0: 1})
    other.apply([said(1, "Likes tea."), said(2, "Likes gin.")], {0: 2})
    digests, former = other.digests(), store.path
    assert former is not None
    files = former.rglob("*") if former.is_dir() else former.parent.glob(f"{former.name}*")
    for file in filter(Path.is_file, files):
        # In its place, as whoever writes a file anew does: who has it open sees it.
        with file.open("r+b") as opened:
            opened.write(b"\xff" * file.stat().st_size)
    store.adopt(other)
    assert store.digests() == digests
    store.apply([said(3, "Likes rum.")], {0: 3})
    assert texts(store, "rum") == ["Likes rum."]
    store.close()


def test_a_store_that_is_damaged_says_so_and_can_be_fed_anew(
    local: Callable[..., LocalStore],
) -> None:
    first = local()
    news = [said(n, f"Fact {n} of many words.") for n in range(300)]
    first.apply(news, {0: 7})
    digests, path = first.digests(), first.path
    first.close()
    assert path is not None
    files = [path] if path.is_file() else [one for one in path.rglob("*.lance") if one.is_file()]
    largest = max(files, key=lambda one: one.stat().st_size)
    content = bytearray(largest.read_bytes())
    middle = len(content) // 2
    content[middle:] = b"\xff" * (len(content) - middle)
    largest.write_bytes(content)
    again = local()
    if again.checkpoints():  # else it was seen at once
        with pytest.raises(Healing, match="damaged"):
            again.digests()
        assert again.damaged
        again.drop()
    again.apply(news, {0: 7})
    assert again.digests() == digests and not again.damaged
    again.close()


@pytest.mark.parametrize(
    ("code", "text", "cause"),
    [
        (sqlite3.SQLITE_FULL, "database or disk is full", "the disk of its folder is full"),
        (sqlite3.SQLITE_READONLY, "it is read-only", "its folder cannot be read or written"),
        (sqlite3.SQLITE_BUSY, "database is locked", "its folder cannot be read or written"),
    ],
)
def test_a_sound_file_stays_where_it_cannot_be_opened_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str, cause: str
) -> None:
    class Failing(sqlite3.Connection):
        def executescript(self, sql: str, /) -> sqlite3.Cursor:
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            raise error

    path = tmp_path / "memories.db"
    store = SqliteMemories(path)
    store.apply([said(1, "Likes tea.")], {0: 7})
    store.close()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
        with pytest.raises(MemoryUnavailable) as raised:
            SqliteMemories(path)
    assert raised.value.cause.startswith(cause) and str(tmp_path) not in str(raised.value)
    assert raised.value.with_folder.startswith(cause.replace("its folder", str(tmp_path)))
    again = SqliteMemories(path)
    assert again.checkpoints() == {0: 7}
    again.close()


def test_a_damaged_file_is_replaced_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memories.db"
    path.write_bytes(b"no database at all" * 100)
    SqliteMemories(path).close()
    (line,) = [one.getMessage() for one in caplog.records]
    assert line == (
        f"the memory store in {path} is made anew from its topic: its file is damaged"
        " (file is not a database)"
    )
    caplog.clear()
    SqliteMemories(path).close()
    assert not caplog.records


def test_a_write_for_which_the_disk_has_no_room_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    class Watched(sqlite3.Connection):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            opened.append(self)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    store = SqliteMemories(tmp_path / "memories.db")
    (disk,) = opened
    store.apply([said(1, "Likes tea.")], {0: 1})
    much = [said(n, f"Fact {n} of many words.") for n in range(2, 300)]
    disk.execute("PRAGMA max_page_count = 1")
    for _ in range(2):
        with pytest.raises(MemoryUnavailable, match="the disk of its folder is full"):
            store.apply(much, {0: 2})
    assert store.checkpoints() == {0: 1} and texts(store, "tea") == ["Likes tea."]
    disk.execute("PRAGMA max_page_count = 100000")
    store.apply(much, {0: 2})
    assert store.checkpoints() == {0: 2} and not store.damaged
    store.close()


def test_a_store_that_could_not_be_emptied_is_emptied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    store = SqliteMemories(tmp_path / "memories.db")
    store.apply([said(1, "Likes tea.")], {0: 1})
    with monkeypatch.context() as patched:
        patched.setattr("streams.memory.sqlite_index.remove", refuse)
        with pytest.raises(MemoryUnavailable, match="Read-only file system"):
            store.drop()
    assert store.damaged
    with pytest.raises(Healing):
        store.checkpoints()
    store.drop()
    assert store.checkpoints() == {} and not store.damaged
    store.close()


def test_what_lance_quotes_of_a_full_disk_is_no_damage() -> None:
    pytest.importorskip("lancedb", reason="no LanceDB here: pip install lancedb")
    from streams.memory.lance_tables import fault_of, is_damage

    full = RuntimeError("lance error: LanceError(IO): No space left on device (os error 28), x.rs")
    missing = RuntimeError("lance error: LanceError(IO): No such file or directory (os error 2)")
    found = fault_of(full)
    assert found is not None and found.errno == errno.ENOSPC and not is_damage(full)
    assert fault_of(missing) is None and is_damage(missing)
