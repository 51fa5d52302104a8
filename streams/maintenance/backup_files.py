"""The files of backups: a manifest, and a file for each partition; and backups that follow others.

A folder has ``manifest.json`` and a file for each partition: lines of JSON, gzip, a record each as
``[offset, timestamp, key, value, headers]`` with bytes in base64. The manifest has two digests of
each: the SHA-256 of the file, which shows damage before anything is written, and one of the records
as they stand in the topic, which is compared with the topic that was written.

A backup may follow another: of topics that are not compacted it has what came since. Its manifest
names the one before by its folder's name and its manifest's SHA-256.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from projections.errors import InvalidBackup
from projections.events.untrusted import Undecodable, json_decoder
from streams.log.topic_copies import FILLER, Copied
from streams.log.topics import SPECS

MANIFEST = "manifest.json"
CLAIM = "being-written"
"""The file of a folder that somebody writes to: a second one is refused."""
FORM, PARTIAL = 1, 2
"""The forms of the files: a whole backup, and one that is not whole by itself (it follows another,
or is of one tenant). A form that this release does not know is refused.
"""
LINES = 2_000
"""Records read from a file at once."""
SAVED = {spec.name: spec for spec in SPECS if spec.saved}


class LastRecord(msgspec.Struct, frozen=True):
    """The last record of a partition: its offset, and the SHA-256 of its line."""

    offset: int
    sha256: str


class SavedPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition's file. ``first`` and ``end`` are the offsets that it covers."""

    file: str
    first: int
    end: int
    records: int
    file_sha256: str
    records_sha256: str
    last: LastRecord | None = None


class Previous(msgspec.Struct, frozen=True):
    """The backup that one follows: its folder's name, and the SHA-256 of its manifest."""

    folder: str
    sha256: str


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a backup holds. ``announced`` is up to where the projectors had announced each partition
    of the events. ``tenant``: it holds this tenant alone.
    """

    form: int
    topic_prefix: str
    topics: dict[str, list[SavedPartition]]
    announced: dict[int, int]
    previous: Previous | None = None
    tenant: str | None = None


_manifest = json_decoder(Manifest)


class Backup(msgspec.Struct, frozen=True):
    """A backup's folder and its manifest."""

    folder: Path
    manifest: Manifest

    @property
    def sha256(self) -> str:
        """What the backup that follows knows it by."""
        return file_digest(self.folder / MANIFEST)


class RecordsDigest:
    """The digest of a partition's records: of all of them in their order, or, of a compacted topic,
    of each key's latest, as the broker may drop the others at any time.
    """

    def __init__(self, *, compacted: bool) -> None:
        self._latest: dict[bytes, bytes] | None = {} if compacted else None
        self._all = sha256()
        self.records = 0

    def add(self, record: Copied) -> None:
        """Count a record in; one that only fills a gap is none."""
        if list(record.headers) == FILLER:
            return
        self.records += 1
        line = line_of(record if self._latest is None else record._replace(offset=0))
        if self._latest is None:
            self._all.update(line)
        elif record.value is None:
            self._latest.pop(record.key or b"", None)
        else:
            self._latest[record.key or b""] = line

    def hex(self) -> str:
        """The digest of what was counted in so far."""
        for _, line in sorted((self._latest or {}).items()):
            self._all.update(line)
        self._latest = None if self._latest is None else {}
        return self._all.hexdigest()


# -- reading


def load_manifest(folder: Path) -> Backup:
    """A backup's manifest, without a look at the other files.

    Raises:
        InvalidBackup: it is missing, or not one.
    """
    path = folder / MANIFEST
    try:
        manifest = _manifest(path.read_bytes())
    except FileNotFoundError:
        raise InvalidBackup(
            f"{folder} has no {MANIFEST}: it is not a backup, or the backup is incomplete"
        ) from None
    except (Undecodable, OSError) as error:
        raise InvalidBackup(f"{path} cannot be read: {error}") from None
    known = manifest.form in (FORM, PARTIAL) and set(manifest.topics) <= set(SAVED)
    if not known or (manifest.tenant is None and set(manifest.topics) != set(SAVED)):
        raise InvalidBackup(
            f"{path} is of form {manifest.form} with topics {', '.join(sorted(manifest.topics))}:"
            " this release does not know it"
        )
    return Backup(folder, manifest)


def read_backup(folder: Path) -> Backup:
    """A backup, when every file is there and as it was written.

    Raises:
        InvalidBackup: it is not; the message names the file.
    """
    backup = load_manifest(folder)
    for found in backup.manifest.topics.values():
        for saved in found:
            path = folder / saved.file
            with in_files(path):
                if file_digest(path) != saved.file_sha256:
                    raise InvalidBackup(f"{path} was changed after the backup: its SHA-256 differs")
    return backup


def read_chain(folders: Sequence[Path]) -> list[Backup]:
    """The backups that make a whole one together, the oldest first: those named, and those that
    they follow, which are found beside them.

    Raises:
        InvalidBackup: one is damaged or missing, or they do not follow one another.
    """
    named = {backup.sha256: backup for backup in map(read_backup, folders)}
    followed = {b.manifest.previous.sha256 for b in named.values() if b.manifest.previous}
    tips = [backup for known, backup in named.items() if known not in followed]
    if len(tips) != 1:
        raise InvalidBackup(
            f"{' and '.join(str(tip.folder) for tip in tips)} do not follow one another: name the"
            " last backup of one chain, and those that it follows"
        )
    chain = tips
    while (previous := chain[0].manifest.previous) is not None:
        before = named.pop(previous.sha256, None) or _beside(chain[0], previous)
        chain.insert(0, before)
    return chain


def _beside(backup: Backup, previous: Previous) -> Backup:
    folder = backup.folder.resolve().parent / previous.folder
    missing = f"{backup.folder} follows the backup {previous.folder}"
    if not (folder / MANIFEST).exists():
        raise InvalidBackup(
            f"{missing}, which is not beside it: name its folder, too, or restore the last backup"
            " before it"
        )
    found = read_backup(folder)
    if found.sha256 != previous.sha256:
        raise InvalidBackup(f"{missing}, and {folder} is another one")
    return found


def beginning_offsets(chain: Sequence[Backup], name: str) -> dict[int, int]:
    """For each partition of a topic of which no backup has the first records, as they were lost,
    the offset at which it began.

    A backup begins where the one before ends. Of one that begins later the records between were
    lost, and so was all before.
    """
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for backup in chain:
        for number, saved in enumerate(backup.manifest.topics[name]):
            if saved.first > ends.get(number, 0):
                begins[number] = saved.first
            ends[number] = saved.end
    return begins


def read_lines(path: Path) -> Iterator[list[Copied]]:
    """The records of a file, some at a time; raises InvalidBackup."""
    with in_files(path), gzip.open(path, "rb") as file:
        found: list[Copied] = []
        for line in file:
            found.append(record_of(line))
            if len(found) >= LINES:
                yield found
                found = []
        yield found


def last_record(folder: Path, saved: SavedPartition) -> LastRecord | None:
    """The last record of a partition; earlier releases did not note it, so its file is read."""
    if saved.last is not None or not saved.records:
        return saved.last
    last = b""
    with in_files(folder / saved.file), gzip.open(folder / saved.file, "rb") as file:
        for line in file:
            last = line
    return LastRecord(record_of(last).offset, sha256(last).hexdigest()) if last else None


# -- lines and files


def line_of(record: Copied) -> bytes:
    """A record's line."""
    headers = [[name, _text(value)] for name, value in record.headers]
    return (
        msgspec.json.encode(
            [record.offset, record.timestamp, _text(record.key), _text(record.value), headers]
        )
        + b"\n"
    )


def record_of(line: bytes) -> Copied:
    """The record of a line."""
    offset, timestamp, key, value, headers = json.loads(line)
    sent = tuple((name, _raw(raw) or b"") for name, raw in headers)
    return Copied(offset, timestamp, _raw(key), _raw(value), sent)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _raw(text: Any) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a backup's folder, for one that writes it alone; raises InvalidBackup where it has
    something in it.
    """
    claim = folder / CLAIM
    taken = f"{folder} is not empty: name a new folder"
    with in_files(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidBackup(taken)
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise InvalidBackup(taken) from None
    try:
        # Another one may have ended meanwhile.
        if any(path != claim for path in folder.iterdir()):
            raise InvalidBackup(taken)
        yield
    finally:
        claim.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it has chat text."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest: last of all, so that a backup that was interrupted has none."""
    with in_files(folder):
        write_private(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))


@contextmanager
def in_files(path: Path) -> Iterator[None]:
    """Name what goes wrong with files as an InvalidBackup of this path."""
    try:
        yield
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidBackup(f"{path} cannot be read or written: {reason}") from None
