"""The tables of a memory store in LanceDB: opened or made, written, searched, optimised, rewritten.

Each write is a version, of files that never change. Many versions make reads slow and keep what was
deleted, so they are put together now and then, and older ones deleted.
"""

from __future__ import annotations

import errno
import os
import re
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.index import FTS, BTree
from lancedb.query import MatchQuery

from streams.memory.key_words import code_of
from streams.memory.lance_reads import LanceReads
from streams.memory.lance_rows import SCHEMA, UNWIPED, Row, table_of

VERSION = 2
"""Raised whenever the rows, or what is made of the same records, change."""
ROWS = f"rows-{VERSION}"
COMMITS, WRITTEN = 50, 20_000
"""Commits, or rows that were written, after which versions are put together. Words of new rows are
in no index until then: they are looked for one by one.
"""
_LOOKED_UP = ("key", "part", "tenant", "user")
_NOW = timedelta(0)
_FAULT = re.compile(
    rf"\(os error ({errno.ENOSPC}|{errno.EDQUOT}|{errno.EACCES}|{errno.EPERM}|{errno.EROFS}"
    rf"|{errno.EIO}|{errno.EMFILE}|{errno.ENFILE})\)"
)
"""How Lance quotes an error of the system that is no damage."""
# Nobody else works on a store's tables.
warnings.filterwarnings("ignore", message=r"optimize\(cleanup_older_than=0\)")


class LanceTables:
    """The tables of one folder, for one process that writes."""

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        """Open them; with ``make`` they are made where they are missing."""
        self._folder = folder
        self._db = lancedb.connect(str(folder))
        self._commits = self._written = 0
        names = self._names()
        if ROWS in names or not make:
            self._rows = self._db.open_table(ROWS)
        else:
            for name in names:
                self._db.drop_table(name)
            self._rows = self._db.create_table(ROWS, schema=SCHEMA)
        if make and len(self._rows.list_indices()) <= len(_LOOKED_UP):
            self._index()

    @property
    def reads(self) -> LanceReads:
        """A look at the rows."""
        return LanceReads(self._rows)

    @property
    def unwiped(self) -> bool:
        """Whether texts were deleted that files still hold."""
        return bool(self.reads.select(f"key = '{UNWIPED}'", "key"))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def write(self, rows: list[Row]) -> None:
        """Write rows, in one commit."""
        merge = self._rows.merge_insert("key").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(table_of(rows))
        self._wrote(len(rows))

    def having(self, words: str, condition: str, column: str, limit: int) -> list[Any]:
        """A column of the rows that a condition holds for and that have some of these words, best
        first.
        """
        asked = self._rows.search(MatchQuery(words, "words"), query_type="fts")
        found = (
            asked.where(condition, prefilter=True)
            .select([column, "_score"])
            .limit(limit)
            .to_arrow()
        )
        return list(found[column].to_pylist())

    def optimise(self) -> None:
        """Put versions together, bring the indexes up to date, and delete what no longer counts."""
        self._commits = self._written = 0
        self._rows.delete("part IS NULL")
        for table in (self._rows, *self._vectors()):
            table.optimize(cleanup_older_than=_NOW, delete_unverified=True)

    def rewrite(self) -> None:
        """Write all that counts anew, and delete all other files: no deleted text is left."""
        for table in self._vectors():
            self._overwrite(table, "number IS NOT NULL")
        self._rows = self._overwrite(self._rows, f"part IS NOT NULL AND key <> '{UNWIPED}'")
        self._index()
        self.optimise()

    def vectors(self, model: str) -> Any | None:
        """The table of a model's vectors; None where there is none."""
        name = f"vectors-{code_of(model)}"
        return self._db.open_table(name) if name in self._names() else None

    def add_vectors(self, model: str, rows: pa.Table) -> None:
        """Add a model's vectors whose numbers are new."""
        table = self.vectors(model)
        if table is None:
            table = self._db.create_table(f"vectors-{code_of(model)}", schema=rows.schema)
        table.merge_insert("number").when_not_matched_insert_all().execute(rows)
        self._wrote(len(rows))

    def drop_vectors(self, model: str) -> None:
        """Delete a model's vectors."""
        if self.vectors(model) is not None:
            self._db.drop_table(f"vectors-{code_of(model)}")

    def _wrote(self, rows: int) -> None:
        self._commits += 1
        self._written += rows
        if self._commits >= COMMITS or self._written >= WRITTEN:
            self.optimise()

    def _overwrite(self, table: Any, kept: str) -> Any:
        """A table with those of its rows that a condition holds for, in new files."""
        rows = table.search().where(kept).limit(1 << 31).to_arrow().select(table.schema.names)
        return self._db.create_table(table.name, rows, schema=table.schema, mode="overwrite")

    def _names(self) -> list[str]:
        return list(self._db.list_tables(limit=1_000).tables)

    def _vectors(self) -> list[Any]:
        found = map(self.vectors, self.reads.models().sizes)
        return [one for one in found if one is not None]

    def _index(self) -> None:
        for column in _LOOKED_UP:
            self._rows.create_index(column, config=BTree(), replace=True)
        words = FTS(
            base_tokenizer="whitespace",
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            with_position=False,
            max_token_length=None,
        )
        self._rows.create_index("words", config=words, replace=True)


def is_damage(error: Exception) -> bool:
    """Whether it says that files are missing or are not what they should be; not that the disk is
    full, or may not be written.
    """
    if _FAULT.search(str(error)):
        return False
    return isinstance(error, RuntimeError | OSError | ValueError) and "lance" in str(error).lower()


def fault_of(error: Exception) -> OSError | None:
    """The system's own error that LanceDB quotes: a full disk, say."""
    found = _FAULT.search(str(error))
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))
