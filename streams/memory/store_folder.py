"""The folder in which a gateway's memory store and its index of turns lie, and how another store
takes the store's place.

Each store is a file of its own, and ``live`` names the one that counts. A new one is built beside
it; then ``live`` is replaced in one step, so a crash leaves the old store. The gateway that holds
the folder sees it and goes over (``streams.memory.folder_feed``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from projections.errors import DataFolderInUse, InvalidSettings, MemoryUnavailable
from streams.memory.sqlite_index import remove
from streams.memory.store_faults import naming_faults

logger = logging.getLogger(__name__)
REDIS_STORE = "redis"
"""The setting ``memory_store`` that names no folder, but the store in Redis; a folder of that name
is ``./redis``.
"""
LANCE_STORES = "lancedb:"
"""What the setting begins with where the stores of its folder are LanceDB's."""
SQLITE, LANCE = ".db", ".lance"
"""How the names of stores end."""
_NUMBER = re.compile(r"memories-([0-9]{1,9})")


def folder_path(memory_store: str) -> Path | None:
    """The folder that the setting ``memory_store`` names; None where it names none."""
    place = memory_store.removeprefix(LANCE_STORES)
    return Path(place) if place and memory_store != REDIS_STORE else None


def absolute_store(memory_store: str) -> str:
    """The setting with the whole path of its folder."""
    path = folder_path(memory_store)
    if path is None:
        return memory_store
    return (LANCE_STORES if memory_store.startswith(LANCE_STORES) else "") + str(path.absolute())


def folder_of(memory_store: str) -> StoreFolder | None:
    """The folder that the setting ``memory_store`` names, made where it is missing; raises
    :class:`InvalidSettings` if that fails.
    """
    path = folder_path(memory_store)
    if path is None:
        return None
    return StoreFolder(path, LANCE if memory_store.startswith(LANCE_STORES) else SQLITE)


class StoreFolder:
    """A folder of stores, that only its owner can read. Locks end with the process. Stores of two
    kinds may lie in one folder; each kind has a live one.
    """

    def __init__(self, path: Path, kind: str = SQLITE) -> None:
        """Make the folder where it is missing; raises :class:`InvalidSettings` if that fails.

        Args: ``kind``: how the names of its stores end.
        """
        self.path = path
        self.kind = kind
        self._live_name = "live" if kind == SQLITE else f"live{kind}"
        self._lock: int | None = None
        self._turns_lock: int | None = None
        try:
            with naming_faults(path):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except MemoryUnavailable as error:
            raise InvalidSettings(
                f"setting 'memory_store': {path} cannot be made: {error.with_folder}: choose a"
                " writable folder"
            ) from None

    @property
    def live(self) -> Path | None:
        """The store that counts now; None before the first."""
        try:
            name = (self.path / self._live_name).read_text("ascii", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return self.path / name if self._number(name) is not None else None

    def hold(self) -> bool:
        """Become the one process that feeds the live store; False while another one is. A folder
        that has no store, or whose live one is not named any more, gets an empty one, and one that
        was deleted is made again.

        Raises:
            MemoryUnavailable: it cannot be written, or made.
        """
        with naming_faults(self.path):
            if not self.path.is_dir():
                self._make_again()
            if self._lock is None:
                self._lock = self._locked("feeding.lock")
            if self._lock is not None and self.live is None:
                # A name that is none is no other gateway's: nobody writes one.
                damaged = (self.path / self._live_name).exists()
                with self._new(self._live_name, exclusive=not damaged) as file:
                    file.write_text(self._following().name)
            return self._lock is not None

    def _make_again(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        logger.warning(
            "the folder %s of the memory store was deleted: this process goes on with the open"
            " store, which ends with it; start it again, and the store is made from the log",
            self.path,
        )
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        """Let go of the folder."""
        for lock in (self._lock, self._turns_lock):
            if lock is not None:
                os.close(lock)
        self._lock = self._turns_lock = None

    @property
    def turns(self) -> Path:
        """The file of the index of turns."""
        return self.path / "turns.db"

    def hold_turns(self) -> bool:
        """Become the one process that feeds the index of turns; False while another one is. Raises
        as :meth:`hold` says.
        """
        if self._turns_lock is None:
            with naming_faults(self.path):
                self._turns_lock = self._locked("turns.lock")
        return self._turns_lock is not None

    def tidy(self) -> None:
        """Remove the stores before the live one, and those of builds that were broken off: what is
        erased from now on does not stay in them. For the process that holds the folder. Raises as
        :meth:`hold` says.
        """
        with naming_faults(self.path):
            self._tidy()

    def _tidy(self) -> None:
        live = self._live_number
        if live is None:
            return
        stores = self._stores()
        broken_off = [path for number, path in stores if number > live]
        lock = self._locked("building.lock") if broken_off else None
        if lock is not None:
            if self._live_number == live:  # else the build ended meanwhile
                for path in broken_off:
                    _remove(path)
            os.close(lock)
        for number, path in stores:
            if number < live:
                _remove(path)

    @contextmanager
    def building(self) -> Iterator[Path]:
        """A new file to build a store in; it becomes the live one when the block has ended well.

        Raises:
            DataFolderInUse: another process builds one here.
        """
        lock = self._locked("building.lock")
        if lock is None:
            raise DataFolderInUse(
                f"another process builds a memory store in {self.path}: wait for it"
            )
        try:
            live = self._live_number
            for number, left in self._stores():
                if live is None or number > live:
                    _remove(left)  # of a build that was broken off
            path = self._following()
            try:
                yield path
            except BaseException:
                _remove(path)
                raise
            with self._new(self._live_name) as file:
                file.write_text(path.name)
            if self.hold():
                self.tidy()
                self.close()
        finally:
            os.close(lock)

    def _stores(self) -> list[tuple[int, Path]]:
        found = ((self._number(path.name), path) for path in self.path.iterdir())
        return sorted((number, path) for number, path in found if number is not None)

    def _following(self) -> Path:
        numbers = [number for number, _ in self._stores()] + [self._live_number or 0]
        return self.path / f"memories-{max(numbers) + 1}{self.kind}"

    @property
    def _live_number(self) -> int | None:
        live = self.live
        return None if live is None else self._number(live.name)

    def _number(self, name: str) -> int | None:
        """The number of a store of this kind; None for another name."""
        found = _NUMBER.fullmatch(name.removesuffix(self.kind))
        return int(found[1]) if found is not None and name.endswith(self.kind) else None

    def _locked(self, name: str) -> int | None:
        """A lock of this process, None while another one has it."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    @contextmanager
    def _new(self, name: str, *, exclusive: bool = False) -> Iterator[Path]:
        """A file to write that then takes a name in one step; ``exclusive``: if that is free."""
        part = self.path / f"{name}.{os.getpid()}.part"
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        if not exclusive:
            part.replace(self.path / name)
        else:
            try:
                os.link(part, self.path / name)
            except FileExistsError:
                pass  # Another gateway made it first: its file is as good.
            finally:
                part.unlink()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a store, whether it is a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        remove(path)
