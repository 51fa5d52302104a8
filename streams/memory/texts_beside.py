"""While a store is built, another process indexes its texts, in a file beside the store's. At the
end both are one.

The index of words takes half of the work of a build, and the rest does not read it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import closing
from pathlib import Path

import msgspec

from streams.memory.sqlite_index import BUILDING, remove
from streams.memory.text_changes import TextsOf, change_texts
from streams.memory.word_index import TABLES, begin_building, end_building, transaction
from streams.runtime.process_pool import WorkerLost, start_process

WAITING = 2
"""Batches that may wait to be indexed."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[TextsOf]).decode


class TextsBeside:
    """The texts of a store that is being built. Calls come from one thread at a time.

    Every call but :meth:`close` raises :class:`WorkerLost` where the process ended, and what
    SQLite raised there.
    """

    def __init__(self, store: Path) -> None:
        """Args: ``store`` is the file that is built."""
        self._path = store.with_name(f"{store.name}-texts")
        self._process = start_process(niceness=0)
        self._waiting: deque[Future[None]] = deque([self._process.submit(_begin, self._path)])

    def change(self, changes: Sequence[TextsOf]) -> None:
        """Have texts changed: some changes later, at the latest with :meth:`merge`."""
        self._wait(WAITING - 1)
        self._submit(_change, _encode(changes))

    def complete(self) -> None:
        """No changes come any more."""
        self._submit(_complete)

    def merge(self, db: sqlite3.Connection) -> None:
        """Put texts and index into a store without texts. Its index must not be used before it is
        opened again.
        """
        self._wait(0)
        db.execute("ATTACH ? AS built", (str(self._path),))
        with transaction(db):
            # FTS5 keeps an index in tables that begin with its name (https://sqlite.org/fts5.html).
            parts = db.execute("SELECT name FROM built.sqlite_schema WHERE name GLOB 'words_*'")
            for (name,) in [("texts",), ("sizes",), *parts.fetchall()]:
                db.execute(f"DELETE FROM main.{name}")
                db.execute(f"INSERT INTO main.{name} SELECT * FROM built.{name}")
        db.execute("DETACH built")

    def close(self) -> None:
        """End the process, and remove its file."""
        # One that has done its work ends by itself meanwhile.
        self._process.shutdown(wait=bool(self._waiting), cancel_futures=True)
        remove(self._path)

    def _submit(self, function: object, *args: object) -> None:
        try:
            self._waiting.append(self._process.submit(function, *args))  # type: ignore[arg-type]
        except BrokenExecutor as error:
            raise _lost() from error

    def _wait(self, left: int) -> None:
        while len(self._waiting) > left:
            try:
                self._waiting.popleft().result()
            except BrokenExecutor as error:
                raise _lost() from error


def _lost() -> WorkerLost:
    return WorkerLost(
        "the process that indexes the texts of the memory store ended: build it again"
    )


class _Open(threading.local):
    """In the other process, or in its thread in a process that may have no other: the database."""

    db: sqlite3.Connection


_open = _Open()


def _begin(path: Path) -> None:
    remove(path)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.executescript(f"{BUILDING}; BEGIN; {TABLES} COMMIT")
    begin_building(db)
    _open.db = db


def _change(packed: bytes) -> None:
    with transaction(_open.db):
        change_texts(_open.db, _decode(packed))


def _complete() -> None:
    with closing(_open.db) as db:
        end_building(db)
