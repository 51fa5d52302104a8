"""The memory store in LanceDB, in a folder: records, words and vectors in Lance's columns.

It needs the extra ``lancedb``. One process writes it, as with the store in SQLite. Each batch is
one commit of one table (``streams.memory.lance_rows``), so a crash leaves all of it or nothing.
Words are looked for after tenant, user and channel have left all others out.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

from projections.errors import Healing
from projections.memory.news import News
from streams.memory.key_changes import changes_of
from streams.memory.key_reads import ReadsByKey
from streams.memory.key_words import conditions, indexed_word
from streams.memory.keyed_store import KeyedMemories, Ranked, candidates
from streams.memory.lance_rows import UNWIPED, row, rows_of, where
from streams.memory.lance_tables import LanceTables, fault_of, is_damage
from streams.memory.lance_vectors import LanceVectors
from streams.memory.store import Filter
from streams.memory.store_faults import naming_faults
from streams.memory.wipes import Wipes

logger = logging.getLogger(__name__)

T = TypeVar("T")
COUNTED = 10_000
"""Records that are counted to say how rare a word is; one of more is as rare as that."""
TRIES = 5
"""Times that a folder which another process writes is copied."""


def remove(path: Path) -> None:
    """Remove a store's folder."""
    shutil.rmtree(path, ignore_errors=True)


class LanceMemories(KeyedMemories):
    """Records in a folder of their own, or in one that goes with the process. Calls may come from
    any thread; they take turns.
    """

    def __init__(self, path: Path | None = None, *, building: bool = False) -> None:
        """Open the folder, or begin anew where it is damaged or of another version. What is being
        built is of no use until :meth:`finish` has written it out.
        """
        self._lock = threading.RLock()
        self._building = building
        self._wipes = Wipes()
        self._unwiped = False
        """Whether texts were deleted that files still hold."""
        self._path = path
        self._folder = path or Path(tempfile.mkdtemp(prefix="threadfold-memories-"))
        self.damaged = False
        """Whether its files were found to be damaged: :meth:`drop` makes others."""
        self.vectors = LanceVectors(self._turn)
        """The vectors of its texts."""
        try:
            self._tables = LanceTables(self._folder)
            self._unwiped = self._tables.unwiped
            if self._unwiped:
                self._wipe()
        except Exception as error:
            self._raise_fault(error)
            if not is_damage(error):
                raise
            logger.warning("the memory store in %s is made anew: %s", self._folder, error)
            self.drop()

    @property
    def path(self) -> Path | None:
        """Its folder; None for one that goes with the process."""
        return self._path

    def close(self) -> None:
        """Let go of the folder."""
        with self._lock:
            if self._path is None:
                remove(self._folder)
            elif self._unwiped and not self._building:
                with suppress(Exception):  # whatever it is: the next to open it does so
                    self._tables.rewrite()

    def drop(self) -> None:
        """Delete everything, the checkpoints too."""
        with self._lock:
            remove(self._folder)
            self._tables = LanceTables(self._folder)
            self.damaged = False
            self.vectors.begin()

    def finish(self) -> None:
        """Make what was built a store that lasts."""
        with self._turn() as tables:
            tables.optimise()
        self._building = False

    def adopt(self, other: Self) -> None:
        """Become another one, which must not be used any more. Readers find one or the other."""
        with self._lock, other._lock:
            if self._path is not None and other._path is not None and self._path.exists():
                try:
                    other.vectors.take_over(self._tables)
                except Exception as error:
                    if not is_damage(error):
                        raise
                    logger.warning("no vectors are taken over from %s: %s", self._path, error)
            if self._path is None:
                remove(self._folder)
            self._path, self._folder, self._tables = other._path, other._folder, other._tables
            self._unwiped = other._unwiped
            self.vectors.begin()

    @classmethod
    def copied(cls, path: Path) -> Self | None:
        """What a folder has now, also while another process writes it, in a folder that goes with
        this one; None where the folder is not there, is damaged or of another version.
        """
        for _ in range(TRIES if path.is_dir() else 0):
            made = cls()
            with suppress(Exception):  # whatever it is: it cannot be read
                _copy(path, made._folder)
                made._tables = LanceTables(made._folder, make=False)
                made.digests()
                return made
            made.close()
        return None

    # -- feeding

    def apply(self, news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
        with self._turn() as tables:
            reads = tables.reads
            changes = changes_of(news, reads)
            taught = {log: list(events) for log, events in reads.taught(changes.erased).items()}
            wiped = bool(changes.gone_texts or changes.erased)
            # Vectors that are missing are made again, whatever happens now.
            self.vectors.leave(tables, changes.gone_texts)
            rows = rows_of(changes, reads.checkpoints() | dict(checkpoints), taught)
            if wiped:
                rows.append(row(UNWIPED, UNWIPED))
            tables.write(rows)
            self._unwiped |= wiped
            if self._unwiped:
                self._wipe()

    def tidy(self) -> None:
        """See to it that texts are gone from the files as well which were deleted shortly after
        others.
        """
        with self._turn():
            if self._unwiped:
                self._wipe()

    def _wipe(self) -> None:
        """Rewrite what holds deleted texts, unless that was just done."""
        wipes = self._wipes
        if self._building or not wipes.may_begin or not wipes.may_rewrite(self._tables.size):
            return
        with wipes.one():
            self._tables.rewrite()
            wipes.rewritten()
            self._unwiped = False

    # -- reading

    @contextmanager
    def _turn(self) -> Iterator[LanceTables]:
        with self._lock:
            try:
                yield self._tables
            except Exception as error:
                self._raise_fault(error)
                if is_damage(error):
                    self.damaged = True
                    raise Healing(
                        "the folder of the memory store is damaged: it is filled again from its"
                        " topic"
                    ) from error
                raise

    def _raise_fault(self, error: Exception) -> None:
        fault = fault_of(error)
        if fault is not None:
            with naming_faults(self._folder):
                raise fault from error

    def _read(self, work: Callable[[ReadsByKey], T]) -> T:
        with self._turn() as tables:
            return work(tables.reads)

    def _ranked(self, only: Filter, stems: Sequence[str]) -> Ranked:
        asked, column = where(conditions(only)), "records" if only.as_of is None else "value"
        words = [indexed_word(stem) for stem in stems]
        with self._turn() as tables:
            found = tables.having(" ".join(words), asked, column, candidates(only))
            having = None
            if len(found) >= candidates(only):
                having = {
                    stem: len(tables.having(word, asked, "key", COUNTED))
                    for stem, word in zip(stems, words, strict=True)
                }
        return Ranked(found, having)


def _copy(path: Path, target: Path) -> None:
    """Copy a folder that may be written meanwhile: what says which files count comes first."""
    remove(target)
    for versions in path.glob("*/_versions"):
        shutil.copytree(versions, target / versions.relative_to(path))
    shutil.copytree(path, target, ignore=shutil.ignore_patterns("_versions"), dirs_exist_ok=True)
