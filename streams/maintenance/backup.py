"""Backups: the saved topics in files (``streams.maintenance.backup_files``), and back again at the
same offsets.

Ends are taken in an order that leaves no record without what it needs, while traffic runs: what was
announced first, then events, then control and keys. Redis holds nothing that is not in these
topics.

A backup that follows another has, of topics that are not compacted, the records since. Compacted
topics are whole in each: what was deleted of them may be gone without a trace by then. Of keys it
has those that stand (``streams.maintenance.newest_keys``). Control has nothing of conversations,
and a tenant's newest record is not always the one that counts: all of it is saved.
"""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from projections.errors import Conflict, InvalidBackup, TopicMismatch
from streams.log.consumer_group import members
from streams.log.sole_writer import SoleWriter, sole_writer
from streams.log.topic_copies import (
    Copied,
    Extent,
    PartitionWriter,
    commit,
    committed,
    delete_before,
    extents,
    is_compacted,
    keep_timestamps,
    read_partition,
)
from streams.log.topics import TopicSpec, check_shapes, create_topics
from streams.maintenance.backup_files import (
    FORM,
    PARTIAL,
    SAVED,
    Backup,
    LastRecord,
    Manifest,
    Previous,
    RecordsDigest,
    SavedPartition,
    beginning_offsets,
    file_digest,
    in_files,
    last_record,
    line_of,
    load_manifest,
    new_folder,
    read_chain,
    read_lines,
    write_manifest,
    write_private,
)
from streams.maintenance.newest_keys import newest_keys
from streams.settings.settings import Settings

ORDER = ("summaries", "memories", "events", "control", "keys")
ANNOUNCED = ("summaries", "memories")
"""Of these a lost beginning is tolerated: their readers say so, and go on with what is left."""
Progress = Callable[[int, int], None]
"""Told how many records of how many are done."""


async def export(
    settings: Settings, folder: Path, progress: Progress, since: Path | None = None
) -> Manifest:
    """Write the saved topics into a new folder; with ``since`` what came after that backup.

    Raises:
        InvalidBackup: the folder has something in it, or cannot be written; ``since`` is not a
            backup of this log.
        TopicMismatch: a topic is missing, or the events have lost their beginning.
        KafkaUnavailable: the brokers do not answer.
    """
    before = None if since is None else load_manifest(since)
    if before is not None and before.manifest.tenant is not None:
        raise InvalidBackup(f"{since} is of one tenant: no other backup follows it")
    with new_folder(folder):
        events = settings.topic("events")
        announced = await committed(settings, events, len(await extents(settings, "events")))
        parts = {name: await extents(settings, name) for name in ORDER}
        check_beginning(settings, parts["events"])
        lasts: dict[tuple[str, int], LastRecord | None] = {}
        if before is not None:
            lasts = await _continued(settings, before, parts)
            for name, number in lasts:
                part, end = parts[name][number], before.manifest.topics[name][number].end
                # It may have lost all that was saved of it, and more.
                parts[name][number] = part._replace(first=max(part.first, end))
        total, done = sum(part.end - part.first for found in parts.values() for part in found), 0
        topics: dict[str, list[SavedPartition]] = {}
        for name, found in parts.items():
            topics[name] = []
            wanted = (await newest_keys(settings, found[0].end)).stands if name == "keys" else None
            for number, part in enumerate(found):
                saved = await export_partition(settings, SAVED[name], number, part, folder, wanted)
                if saved.last is None:
                    saved = msgspec.structs.replace(saved, last=lasts.get((name, number)))
                topics[name].append(saved)
                progress(done := done + part.end - part.first, total)
        previous = None if before is None else Previous(before.folder.resolve().name, before.sha256)
        form = FORM if previous is None else PARTIAL
        manifest = Manifest(form, settings.topic_prefix, topics, announced, previous)
        write_manifest(folder, manifest)
        return manifest


def check_beginning(settings: Settings, events: Sequence[Extent]) -> None:
    """Raise TopicMismatch if the log has lost its first events."""
    if any(part.first for part in events):
        raise TopicMismatch(
            f"topic {settings.topic('events')} has lost its first events: the rest cannot be"
            " folded, and what is exported of it could not be restored"
        )


async def _continued(
    settings: Settings, before: Backup, parts: dict[str, list[Extent]]
) -> dict[tuple[str, int], LastRecord | None]:
    """The last record that a backup has of each partition, if all of them are still there.

    Raises:
        InvalidBackup: the topics are others than it was made of.
    """
    lasts: dict[tuple[str, int], LastRecord | None] = {}
    for name, found in before.manifest.topics.items():
        if is_compacted(SAVED[name]):
            continue
        there = parts[name]
        for number, saved in enumerate(found):
            last = lasts[name, number] = last_record(before.folder, saved)
            same = len(there) == len(found) and saved.end <= there[number].end
            if same and last is not None:
                topic, end = settings.topic(name), last.offset + 1
                rows = each(read_partition(settings, topic, number, end, first=last.offset))
                same = last.sha256 in [sha256(line_of(row)).hexdigest() async for row in rows]
            if not same:
                raise InvalidBackup(
                    f"topic {settings.topic(name)}, partition {number}, is not the one that"
                    f" {before.folder} was made of: make a full backup, without --since"
                )
    return lasts


async def export_partition(
    settings: Settings,
    spec: TopicSpec,
    number: int,
    part: Extent,
    folder: Path,
    wanted: Callable[[Copied], bool] | None = None,
) -> SavedPartition:
    """Write a partition's records into its file, all of them or those that are ``wanted``."""
    path = folder / f"{spec.name}-{number:05}.jsonl.gz"
    digest = RecordsDigest(compacted=is_compacted(spec))
    last: LastRecord | None = None
    with in_files(folder):
        write_private(path, b"")
        with gzip.open(path, "wb", compresslevel=3) as file:
            async for record in each(
                read_partition(
                    settings, settings.topic(spec.name), number, part.end, first=part.first
                )
            ):
                if wanted is None or wanted(record):
                    digest.add(record)
                    line = line_of(record)
                    file.write(line)
                    last = LastRecord(record.offset, "")
        if last is not None:
            last = LastRecord(last.offset, sha256(line).hexdigest())
        return SavedPartition(
            path.name,
            part.first,
            part.end,
            digest.records,
            file_digest(path),
            digest.hex(),
            last,
        )


async def restore(settings: Settings, folders: Sequence[Path], progress: Progress) -> list[Backup]:
    """Create the topics and write a backup into them, and those that it follows; then read them and
    compare the digests.

    Raises:
        InvalidBackup: a file is damaged, a backup is missing, or what was written is not what was
            saved.
        TopicMismatch: a topic is there already and has records.
        Conflict: workers run: the group's offsets are theirs. Or another command writes the log.
        KafkaUnavailable: the brokers do not answer.
    """
    chain = read_chain(folders)
    newest = chain[-1].manifest
    if newest.tenant is not None:
        raise InvalidBackup(
            f"{chain[-1].folder} has only tenant {newest.tenant}: `threadfold tenants import`"
            " reads it"
        )
    if await members(settings):
        raise Conflict(
            f"workers of the group {settings.group} run: stop them (one that was killed counts for"
            f" {settings.session_timeout:g} s), or set THREADFOLD_GROUP to another group, here and"
            " for the services of what is restored"
        )
    as_saved = msgspec.structs.replace(settings, partitions=len(newest.topics["events"]))
    await create_topics(as_saved, filled=newest.topics)
    async with sole_writer(settings) as sole:
        await _write(settings, chain, sole, progress)
    if wrong := await check_shapes(settings):
        raise TopicMismatch(f"restored, but {wrong[0]}")
    return chain


async def _write(
    settings: Settings, chain: list[Backup], sole: SoleWriter, progress: Progress
) -> None:
    """Write a backup into empty topics."""
    newest = chain[-1].manifest
    for name, found in newest.topics.items():
        there = await extents(settings, name)
        if len(there) != len(found) or any(part.end for part in there):
            raise TopicMismatch(
                f"topic {settings.topic(name)} is there already, with {len(there)} partitions and"
                f" {sum(part.end - part.first for part in there)} records: delete the topics of"
                f" {settings.topic_prefix}, or restore with another topic_prefix"
            )
    total = sum(saved.records for name in ORDER for _, saved in _files(chain, name))
    done = 0
    await keep_timestamps(settings, list(newest.topics), keep=True)
    async with sole.producer(settings) as producer:
        for name in newest.topics:
            exact = not is_compacted(SAVED[name])
            topic = settings.topic(name)
            writers = [
                PartitionWriter(producer, topic, number, exact=exact)
                for number in range(len(newest.topics[name]))
            ]
            for (folder, number), saved in _files(chain, name):
                for records in read_lines(folder / saved.file):
                    await writers[number].write(records)
                    progress(done := done + len(records), total)
                await writers[number].fill(saved.end)
                await writers[number].flush()
    sole.check()
    await keep_timestamps(settings, list(newest.topics), keep=False)
    await _compare(settings, chain)
    for name in ANNOUNCED:
        # With what fills the lost offsets it would pass for a topic that is whole.
        await delete_before(settings, name, beginning_offsets(chain, name))
    await commit(settings, settings.topic("events"), newest.announced)


def _files(chain: list[Backup], name: str) -> list[tuple[tuple[Path, int], SavedPartition]]:
    """A topic's files in the order in which they are written: of a compacted one the newest."""
    parts = chain[-1:] if is_compacted(SAVED[name]) else chain
    return [
        ((backup.folder, number), saved)
        for backup in parts
        for number, saved in enumerate(backup.manifest.topics[name])
    ]


async def _compare(settings: Settings, chain: list[Backup]) -> None:
    """Raise InvalidBackup where a topic is not what was saved."""
    for name in ORDER:
        topic, compacted = settings.topic(name), is_compacted(SAVED[name])
        ends = await extents(settings, name)
        for (folder, number), saved in _files(chain, name):
            digest = RecordsDigest(compacted=compacted)
            end = ends[number].end if compacted else saved.end
            first = 0 if compacted else saved.first
            async for record in each(read_partition(settings, topic, number, end, first=first)):
                digest.add(record)
            if digest.hex() != saved.records_sha256:
                raise InvalidBackup(
                    f"topic {topic}, partition {number}: what was written is not what {folder} has"
                    f" ({digest.records} records, {saved.records} saved): stop the program that"
                    " writes to it, delete the topics and start again"
                )
        if not compacted and any(
            end.end != chain[-1].manifest.topics[name][number].end
            for number, end in enumerate(ends)
        ):
            raise InvalidBackup(
                f"topic {topic} has records that were not saved: stop the program that writes to"
                " it, delete the topics and start again"
            )


async def each(batches: AsyncIterator[list[Copied]]) -> AsyncIterator[Copied]:
    """Records one by one."""
    async for batch in batches:
        for record in batch:
            yield record
