"""The folder in which a gateway's memory store lies, and how another store takes its place.

Each store is a file of its own, and ``live`` names the one that counts. A new one is built beside
it; then ``live`` is replaced in one step, so a crash leaves the old store. The gateway that holds
the folder sees it and goes over (``streams.memory.folder_feed``).
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from projections.errors import DataFolderInUse, InvalidSettings
from streams.memory.sqlite_store import remove

_STORE = re.compile(r"memories-([0-9]{1,9})\.db")


class StoreFolder:
    """A folder of stores, that only its owner can read. Locks end with the process."""

    def __init__(self, path: Path) -> None:
        """Make the folder where it is missing; raises :class:`InvalidSettings` if that fails."""
        self.path = path
        self._lock: int | None = None
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidSettings(
                f"setting 'memory_store': {path} cannot be made ({error.strerror}): name a folder"
                " that may be written"
            ) from None

    @property
    def live(self) -> Path | None:
        """The file that counts now; None before the first."""
        try:
            name = (self.path / "live").read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        return self.path / name if _STORE.fullmatch(name) else None

    def hold(self) -> bool:
        """Become the one process that feeds the live store; False while another one is. A folder
        that has no store gets an empty one.
        """
        if self._lock is None:
            self._lock = self._locked("feeding.lock")
        if self._lock is not None and self.live is None:
            with self._new("live", exclusive=True) as file:
                file.write_text(self._following().name)
        return self._lock is not None

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def tidy(self) -> None:
        """Remove the stores before the live one. For the process that holds the folder."""
        live = self.live
        for number, path in self._stores():
            if live is not None and number < _number(live):
                remove(path)

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
            live = self.live
            for number, left in self._stores():
                if live is None or number > _number(live):
                    remove(left)  # of a build that was broken off
            path = self._following()
            try:
                yield path
            except BaseException:
                remove(path)
                raise
            with self._new("live") as file:
                file.write_text(path.name)
            if self.hold():
                self.tidy()
                self.close()
        finally:
            os.close(lock)

    def _stores(self) -> list[tuple[int, Path]]:
        return sorted(
            (_number(path), path) for path in self.path.iterdir() if _STORE.fullmatch(path.name)
        )

    def _following(self) -> Path:
        stores, live = self._stores(), self.live
        numbers = [number for number, _ in stores] + ([] if live is None else [_number(live)])
        return self.path / f"memories-{max(numbers, default=0) + 1}.db"

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
                pass
            finally:
                part.unlink()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _number(path: Path) -> int:
    found = _STORE.fullmatch(path.name)
    assert found is not None
    return int(found[1])
