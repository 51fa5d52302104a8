"""One tenant, out of a deployment into files, and from there into another deployment, beside the
tenants that are there.

What goes: the tenant's record, quota and policy in force, the hashes of its API keys, the public
keys of its tokens, its events and the wrapped keys of its encrypted conversations. Positions are
new there (``streams.maintenance.log_copy``). The target's workers announce its summaries and
memories, and fold its windows, from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from projections.errors import InvalidBackup, KeyUnusable, TenantExists
from projections.names import Key, parse_key
from projections.policy.policy import Rules
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.control.state import Copy, Generation, State
from streams.encryption.key_table import ERASED, KeyTable, key_place
from streams.encryption.master_keys import master_keys_of
from streams.log.sole_writer import SoleWriter, sole_writer
from streams.log.topic_copies import (
    Copied,
    PartitionWriter,
    extents,
    keep_timestamps,
)
from streams.maintenance.backup import Progress, check_beginning, export_partition
from streams.maintenance.backup_files import (
    PARTIAL,
    SAVED,
    Backup,
    Manifest,
    SavedPartition,
    new_folder,
    read_backup,
    read_lines,
    write_manifest,
)
from streams.maintenance.log_copy import LogCopy, is_of_erased, relocated_erasure
from streams.maintenance.newest_keys import NewestKeys, newest_keys
from streams.maintenance.position_map import PositionMap
from streams.maintenance.repartition import COPY, refuse_workers
from streams.settings.quotas import Tenant
from streams.settings.settings import Settings

GOES = ("events", "control", "keys")
"""The topics that have something of a tenant which does not follow from another."""


class Moved(msgspec.Struct):
    """What a tenant came with; ``differing`` are keys of the deployment's policy that are others
    than where it came from.
    """

    tenant: str
    events: int
    resumed: int
    differing: list[str]


async def export_tenant(
    settings: Settings, tenant: str, folder: Path, progress: Progress
) -> Manifest:
    """Write what a tenant has into a new folder.

    Raises:
        UnknownTenant: there is none of that name.
        InvalidBackup: the folder has something in it, or cannot be written.
        TopicMismatch: the log has lost its first events.
        KafkaUnavailable: the brokers do not answer.
    """
    control = await Control(settings).start()
    state = control.state
    await control.stop()
    state.tenant(tenant)
    with new_folder(folder):
        parts = {name: await extents(settings, name) for name in GOES}
        check_beginning(settings, parts["events"])
        # As of the end of the keys that go: what is erased by then goes in neither topic.
        newest = await newest_keys(settings, parts["keys"][0].end)
        wanted = _wanted(tenant, state, newest)
        total, done = sum(part.end for part in parts["events"]), 0
        topics: dict[str, list[SavedPartition]] = {}
        for name, found in parts.items():
            topics[name] = []
            for number, part in enumerate(found):
                topics[name].append(
                    await export_partition(
                        settings, SAVED[name], number, part, folder, wanted[name]
                    )
                )
                progress(done := min(total, done + part.end), total)
        manifest = Manifest(PARTIAL, settings.topic_prefix, topics, {}, tenant=tenant)
        write_manifest(folder, manifest)
        return manifest


def _wanted(tenant: str, state: State, newest: NewestKeys) -> dict[str, Callable[[Copied], bool]]:
    """Which records of each topic go."""
    begin = f"{tenant}/".encode()

    def event(record: Copied) -> bool:
        key = parse_key(record.key or b"")
        return key is not None and key.tenant == tenant and not is_of_erased(newest.table, record)

    def control(record: Copied) -> bool:
        kind, _, name = (record.key or b"").decode("utf-8", "replace").partition("/")
        if kind == "key":
            return name in state.keys and state.keys[name].tenant == tenant
        own = kind in ("tenant", "token-keys") and name == tenant
        return own or (kind == "generation" and name in ("live", str(state.live)))

    def keys(record: Copied) -> bool:
        return (record.key or b"").startswith(begin) and newest.stands(record)

    return {"events": event, "control": control, "keys": keys}


async def import_tenant(settings: Settings, folder: Path, progress: Progress) -> Moved:
    """Write a tenant's folder into a deployment that does not know the tenant. An interrupted
    import of the same folder goes on.

    Raises:
        InvalidBackup: a file is damaged, it is no tenant's, or what was written is not what it has.
        TenantExists: the deployment has the tenant.
        Conflict: workers run, or another command writes the log.
        InvalidPolicy: the deployment does not allow the tenant's policy.
        KeyUnusable: the master key that wraps its keys is not configured.
        KafkaUnavailable: ask again.
    """
    backup = read_backup(folder)
    tenant = backup.manifest.tenant
    if tenant is None:
        raise InvalidBackup(
            f"{folder} is of all tenants: `threadfold backup import` restores it, and `threadfold"
            " tenants export` makes one of a single tenant"
        )
    source = State()
    for record in _records(backup, "control"):
        with contextlib.suppress(ValueError):  # nobody could read it where it comes from, either
            source.put(record.key or b"", record.value)
    async with sole_writer(settings) as sole:
        live, moved = await _import(settings, backup, tenant, source, sole, progress)
    theirs, ours = source.live_generation.policy, live.policy
    differing = sorted(
        key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)
    )
    return msgspec.structs.replace(moved, differing=differing)


async def _import(
    settings: Settings,
    backup: Backup,
    tenant: str,
    source: State,
    sole: SoleWriter,
    progress: Progress,
) -> tuple[Generation, Moved]:
    """The live generation that it found, and what came."""
    control = await Control(settings).start()
    try:
        live = control.state.live_generation
        await refuse_workers(settings)
        known = source.tenants.get(tenant, Tenant(tenant))
        incoming = msgspec.structs.replace(known, policy=source.policy_of(known), version=0)
        rules = Rules(
            live.policy,
            callables=control.state.callables,
            summarizers=control.state.summarizers,
        )
        rules.check(incoming.policy)
        # In threads, as they may be many: Kafka has to hear of the writer meanwhile.
        await asyncio.to_thread(_check_masters, settings, backup)
        begun = await _begin(settings, control, backup, tenant)
        # First: an event must find its tenant's policy. Its keys come last, so nobody reads or
        # appends before all of it is there.
        await control.write({f"tenant/{tenant}": incoming.after(None)})
        async with sole.producer(settings) as producer:
            sealing = await asyncio.to_thread(_records, backup, "keys")
            keys = [r for r in sealing if not _erases(r)]
            await _write(settings, producer, "keys", keys)
            moved = await _write_events(settings, control, backup, begun, sole, producer, progress)
            rows = [r for r in await asyncio.to_thread(_records, backup, "control") if _opens(r)]
            await _write(settings, producer, "control", rows)
        ends = [extent.end for extent in await extents(settings, "events")]
        sole.check()
        await control.write({COPY + tenant: msgspec.structs.replace(begun, ends=ends)})
        return live, moved
    finally:
        await control.stop()


async def _begin(settings: Settings, control: Control, backup: Backup, tenant: str) -> Copy:
    """Note where the target ended before it, or find the note of an interrupted try."""
    state = control.state
    copy = state.copies.get(tenant)
    unfinished = copy is not None and copy.ends is None
    if copy is not None and unfinished and copy.source == backup.sha256:
        return copy
    if tenant in state.tenants or state.keys_of(tenant) or copy is not None:
        raise TenantExists(
            f"the deployment at {settings.kafka} has tenant {tenant}"
            + (", of another import that was not finished" if unfinished else "")
            + ": a tenant is imported only where there is none of its name"
        )
    starts = [extent.end for extent in await extents(settings, "events")]
    copy = Copy(backup.sha256, starts)
    await control.write({COPY + tenant: copy})
    return copy


def _check_masters(settings: Settings, backup: Backup) -> None:
    """Raise KeyUnusable where one of the tenant's data keys cannot be unwrapped here."""
    table, masters = KeyTable(), master_keys_of(settings)
    for record in _records(backup, "keys"):
        with contextlib.suppress(ValueError):  # every process skips it
            table.put(record.key or b"", record.value)
    seen: set[str] = set()
    for conversation, one in table.all():
        if one.master not in seen:
            seen.add(one.master)
            try:
                masters.unwrap(key_place(conversation, one.kid), one.master, one.wrapped)
            except KeyUnusable as error:
                raise KeyUnusable(
                    f"{error}, after the deployment's own; `threadfold keys rotate` makes it"
                    " superfluous after the import"
                ) from None


async def _write_events(
    settings: Settings,
    control: Control,
    backup: Backup,
    begun: Copy,
    sole: SoleWriter,
    producer: Any,
    progress: Progress,
) -> Moved:
    tenant, files = str(backup.manifest.tenant), backup.manifest.topics["events"]
    keys = KeyRing(settings, encrypting(control))
    places = PositionMap([saved.end for saved in files])

    def wanted(key: Key) -> bool:
        return key.tenant == tenant

    try:
        await keys.start()
        await keep_timestamps(settings, ["events"], keep=True)
        copy = LogCopy(settings, producer, keys, places, begun.starts, wanted=wanted, alone=False)
        resumed = await copy.resume(await extents(settings, "events"))
        total = sum(saved.records for saved in files)
        await copy.write_all([_lines(backup, saved) for saved in files], total, progress)
        events = await copy.compare(await extents(settings, "events"))
        # Of a conversation's erasures the first that is done counts: it names its new position.
        records = await asyncio.to_thread(_records, backup, "keys")
        erasures = [relocated_erasure(r, places) for r in records if _erases(r)]
        await _write(settings, producer, "keys", erasures)
    finally:
        await keys.stop()
        places.close()
        sole.check()  # otherwise another one may rely on them
        await keep_timestamps(settings, ["events"], keep=False)
    return Moved(tenant, events, resumed, [])


async def _lines(backup: Backup, saved: SavedPartition) -> AsyncIterator[list[Copied]]:
    for batch in read_lines(backup.folder / saved.file):
        yield batch


def _records(backup: Backup, name: str) -> list[Copied]:
    return [
        record
        for saved in backup.manifest.topics[name]
        for batch in read_lines(backup.folder / saved.file)
        for record in batch
    ]


def _erases(record: Copied) -> bool:
    """Whether a record of the keys topic is an erasure's."""
    return (record.key or b"").endswith(b"/" + ERASED)


def _opens(record: Copied) -> bool:
    """Whether a control record lets somebody in."""
    return (record.key or b"").partition(b"/")[0] in (b"key", b"token-keys")


async def _write(settings: Settings, producer: Any, name: str, records: Sequence[Copied]) -> None:
    writer = PartitionWriter(producer, settings.topic(name), 0, exact=False)
    await writer.write(records)
    await writer.flush()
