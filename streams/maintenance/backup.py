"""Backups: the saved topics in files, with digests, and back again at the same offsets.

A folder has ``manifest.json`` and a file for each partition: lines of JSON, gzip, a record each as
``[offset, timestamp, key, value, headers]`` with bytes in base64. The manifest has two digests of
each: the SHA-256 of the file, which shows damage before anything is written, and one of the records
as they stand in the topic, which is compared with the topic that was written.

Ends are taken in an order that leaves no record without what it needs, while traffic runs: what was
announced first, then events, then control and keys. Redis holds nothing that is not in these
topics.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from projections.errors import InvalidBackup, TopicMismatch
from streams.log.topic_copies import (
    FILLER,
    Copied,
    Extent,
    PartitionWriter,
    commit,
    committed,
    extents,
    is_compacted,
    keep_timestamps,
    read_partition,
    writing,
)
from streams.log.topics import SPECS, TopicSpec, check_shapes, create_topics
from streams.settings.settings import Settings

MANIFEST = "manifest.json"
FORM = 1
"""The form of the files; one that this release does not know is refused."""
LINES = 2_000
"""Records read from a file at once."""
SAVED = {spec.name: spec for spec in SPECS if spec.saved}
ORDER = ("summaries", "memories", "events", "control", "keys")
Progress = Callable[[int, int], None]
"""Told how many records of how many are done."""


class SavedPartition(msgspec.Struct, frozen=True):
    """One partition's file. ``first`` and ``end`` are the offsets that it covers."""

    file: str
    first: int
    end: int
    records: int
    file_sha256: str
    records_sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup holds. ``announced`` is up to where the projectors had announced each partition
    of the events.
    """

    form: int
    topic_prefix: str
    topics: dict[str, list[SavedPartition]]
    announced: dict[int, int]


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
        line = _line(record if self._latest is None else record._replace(offset=0))
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


async def export(settings: Settings, folder: Path, progress: Progress) -> Manifest:
    """Write the saved topics into a new folder.

    Raises:
        InvalidBackup: the folder has something in it, or cannot be written.
        TopicMismatch: a topic is missing, or the events have lost their beginning.
        KafkaUnavailable: the brokers do not answer.
    """
    _make_folder(folder)
    events = settings.topic("events")
    announced = await committed(settings, events, len(await extents(settings, "events")))
    parts = {name: await extents(settings, name) for name in ORDER}
    if any(part.first for part in parts["events"]):
        raise TopicMismatch(
            f"topic {events} has lost its first events: what is left cannot be folded, and a backup"
            " of it could not be restored"
        )
    total, done = sum(part.end - part.first for found in parts.values() for part in found), 0
    topics: dict[str, list[SavedPartition]] = {}
    for name, found in parts.items():
        topics[name] = []
        for number, part in enumerate(found):
            saved = await _export_partition(settings, SAVED[name], number, part, folder)
            topics[name].append(saved)
            progress(done := done + part.end - part.first, total)
    manifest = Manifest(FORM, settings.topic_prefix, topics, announced)
    with _in_files(folder):
        # Last, so that a backup that was interrupted has none.
        _write_private(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


async def _export_partition(
    settings: Settings, spec: TopicSpec, number: int, part: Extent, folder: Path
) -> SavedPartition:
    path = folder / f"{spec.name}-{number:05}.jsonl.gz"
    digest = RecordsDigest(compacted=is_compacted(spec))
    with _in_files(folder):
        _write_private(path, b"")
        with gzip.open(path, "wb", compresslevel=3) as file:
            async for records in read_partition(
                settings, settings.topic(spec.name), number, part.end
            ):
                for record in records:
                    digest.add(record)
                    file.write(_line(record))
        return SavedPartition(
            path.name, part.first, part.end, digest.records, _file_digest(path), digest.hex()
        )


def read_manifest(folder: Path) -> Manifest:
    """A backup's manifest, when every file is there and as it was written.

    Raises:
        InvalidBackup: it is not; the message names the file.
    """
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise InvalidBackup(
            f"{folder} has no {MANIFEST}: it is no backup, or one that was not finished"
        ) from None
    except (msgspec.DecodeError, OSError) as error:
        raise InvalidBackup(f"{path} cannot be read: {error}") from None
    if manifest.form != FORM or set(manifest.topics) != set(SAVED):
        raise InvalidBackup(
            f"{path} is of form {manifest.form} with topics {', '.join(sorted(manifest.topics))}:"
            " this release does not know it"
        )
    for found in manifest.topics.values():
        for saved in found:
            with _in_files(folder):
                if _file_digest(folder / saved.file) != saved.file_sha256:
                    raise InvalidBackup(
                        f"{folder / saved.file} is not as it was written: its SHA-256 differs"
                    )
    return manifest


async def restore(settings: Settings, folder: Path, progress: Progress) -> Manifest:
    """Create the topics and write a backup into them, then read them and compare the digests.

    Raises:
        InvalidBackup: a file is damaged, or what was written is not what was saved.
        TopicMismatch: a topic is there already and has records.
        KafkaUnavailable: the brokers do not answer.
    """
    manifest = read_manifest(folder)
    partitions = len(manifest.topics["events"])
    await create_topics(msgspec.structs.replace(settings, partitions=partitions))
    for name, found in manifest.topics.items():
        there = await extents(settings, name)
        if len(there) != len(found) or any(part.end for part in there):
            raise TopicMismatch(
                f"topic {settings.topic(name)} is there already, with {len(there)} partitions and"
                f" {sum(part.end - part.first for part in there)} records: delete the topics of"
                f" {settings.topic_prefix}, or restore with another topic_prefix"
            )
    total = sum(part.records for found in manifest.topics.values() for part in found)
    done = 0
    await keep_timestamps(settings, list(manifest.topics), keep=True)
    async with writing(settings) as producer:
        for name, found in manifest.topics.items():
            exact = not is_compacted(SAVED[name])
            for number, saved in enumerate(found):
                writer = PartitionWriter(producer, settings.topic(name), number, exact=exact)
                for records in _read_lines(folder / saved.file):
                    await writer.write(records)
                    progress(done := done + len(records), total)
                await writer.fill(saved.end)
                await writer.flush()
    await keep_timestamps(settings, list(manifest.topics), keep=False)
    await _compare(settings, manifest)
    await commit(settings, settings.topic("events"), manifest.announced)
    if wrong := await check_shapes(settings):
        raise TopicMismatch(f"restored, but {wrong[0]}")
    return manifest


async def _compare(settings: Settings, manifest: Manifest) -> None:
    """Raise InvalidBackup where a topic is not what was saved."""
    for name, found in manifest.topics.items():
        topic = settings.topic(name)
        for number, saved in enumerate(found):
            digest = RecordsDigest(compacted=is_compacted(SAVED[name]))
            end = (await extents(settings, name))[number].end
            async for record in _each(read_partition(settings, topic, number, end)):
                digest.add(record)
            if digest.hex() != saved.records_sha256:
                raise InvalidBackup(
                    f"topic {topic}, partition {number}: what was written is not what was saved"
                    f" ({digest.records} records, {saved.records} saved): stop whatever writes to"
                    " it, delete the topics and begin anew"
                )


async def _each(batches: AsyncIterator[list[Copied]]) -> AsyncIterator[Copied]:
    async for batch in batches:
        for record in batch:
            yield record


# -- files


def _make_folder(folder: Path) -> None:
    with _in_files(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidBackup(f"{folder} is not empty: name a new folder")


def _line(record: Copied) -> bytes:
    headers = [[name, _text(value)] for name, value in record.headers]
    return (
        msgspec.json.encode(
            [record.offset, record.timestamp, _text(record.key), _text(record.value), headers]
        )
        + b"\n"
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _raw(text: Any) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _read_lines(path: Path) -> Iterator[list[Copied]]:
    with _in_files(path), gzip.open(path, "rb") as file:
        found: list[Copied] = []
        for line in file:
            offset, timestamp, key, value, headers = json.loads(line)
            sent = tuple((name, _raw(raw) or b"") for name, raw in headers)
            found.append(Copied(offset, timestamp, _raw(key), _raw(value), sent))
            if len(found) >= LINES:
                yield found
                found = []
        yield found


def _file_digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it has chat text."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@contextmanager
def _in_files(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidBackup(f"{path} cannot be read or written: {reason}") from None
