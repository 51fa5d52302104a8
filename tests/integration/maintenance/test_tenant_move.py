"""A tenant moved into another deployment, on real Kafka and Redis, beside the tenants there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from projections.errors import Erased, InvalidBackup
from projections.names import Key
from streams.encryption.master_keys import new_master
from streams.log.clients import admin_client
from streams.log.topics import create_topics
from streams.maintenance.backup_files import MANIFEST, read_backup, read_lines
from streams.maintenance.tenant_move import export_tenant, import_tenant
from streams.settings.quotas import hash_key
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.integration.maintenance.test_repartition import no_workers
from tests.support.commands import cli, ok
from tests.support.erasure import no_text
from tests.support.generations import open_generation
from tests.support.lost_redis import flush
from tests.support.moved_logs import (
    MOVING,
    SEALED,
    announced,
    caught_up,
    differing,
    exported_keys,
    folder_of,
    records,
    shown,
    talk_of_everything,
)
from tests.support.worker import running_worker
from threadfold.cli.common import open_control
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser

SAY = {"type": "message", "role": "user", "content": "I was here before. I like tea."}
RESIDENTS = [Key("resident", f"r{i}") for i in range(6)]


async def opened(settings: Settings, tenant: str, policy: dict | None = None) -> str:  # type: ignore[type-arg]
    """Make the topics, a generation and a tenant; returns the tenant's key."""
    await flush(settings)
    await create_topics(settings)
    await open_generation(settings, MOVING, acme=None)
    async with open_control(settings) as control:
        await control.ensure_tenant(tenant, policy)
        return await control.add_key(tenant)


@pytest.mark.long
async def test_a_tenant_is_the_same_elsewhere_and_the_others_stay_as_they_were(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    own, theirs = new_master("here"), new_master("there")
    first = fresh_settings(stack, master_keys=own)
    key = await opened(first, "sealed", {"encryption": True})
    second = fresh_settings(stack, master_keys=theirs, partitions=5)
    await opened(second, "resident")
    data, target = folder_of(first, tmp_path / "one"), folder_of(second, tmp_path / "two")
    folder = tmp_path / "sealed"
    async with running_worker(first) as runtime:
        await talk_of_everything(first, runtime)
        before = await shown(first, *SEALED)
        ran = await ok("tenants", "export", "sealed", folder, "--data", data)
    assert ran.lines[0].startswith("exported tenant sealed: ")
    keys = {
        row.key.split(b"/")[0]
        for path in folder.glob("*.gz")
        if "control" not in path.name
        for rows in read_lines(path)
        for row in rows
    }
    assert keys == {b"sealed"}, "nothing of other tenants goes"

    async with running_worker(second) as runtime, ConversationService(second) as service:
        for one in RESIDENTS:
            await service.append(one.tenant, [(one.conversation, SAY)] * 5)
        await caught_up(runtime)
        residents = await shown(second, *RESIDENTS)
        refused = await cli("tenants", "import", folder, "--data", target)
        assert refused.code == 2 and "run: stop them first" in refused.said
    await no_workers(second)
    unknown = await cli("tenants", "import", folder, "--data", target)
    assert unknown.code == 2 and "is wrapped by master key 'here'" in unknown.said
    both = fresh_settings(
        stack,
        redis=second.redis,
        topic_prefix=second.topic_prefix,
        group=second.group,
        master_keys=f"{theirs},{own}",
        partitions=5,
    )
    target = folder_of(both, tmp_path / "both")

    def cut(done: int, total: int) -> None:
        raise KeyError("interrupted")

    with pytest.raises(KeyError):
        await import_tenant(both, folder, cut)
    async with ConversationService(both) as service:
        assert service.control.state.key_of(key) is None, "nobody gets in before all is there"
        await service.append("resident", [("r0", SAY)])
    ran = await ok("tenants", "import", folder, "--data", target)
    assert ran.lines[0].startswith("from an earlier attempt: ")
    assert ran.lines[1].startswith("imported tenant sealed: ")
    there = await cli("tenants", "import", folder, "--data", target)
    assert there.code == 1 and "has tenant sealed" in there.said

    async with running_worker(both) as runtime:
        await caught_up(runtime)
        assert await shown(both, *SEALED) == before
        after = await shown(both, *RESIDENTS[1:])
        assert after == {one: residents[one] for one in RESIDENTS[1:]}
        assert await differing(runtime) == []
        for topic in ("summaries", "memories"):
            assert await announced(both, topic, "sealed") == await announced(first, topic, "sealed")
        assert hash_key(key) in runtime.control.state.keys
        assert (await ok("keys", "rotate", "--data", target)).lines != ["rotated: 0"]
        async with ConversationService(both) as service:
            await service.append("sealed", [("b0", SAY)])
            assert service.keys.is_erased(b"sealed/gone")
    times = {row[4]: row[2] for row in await records(first, "events")}
    same = [row for row in await records(both, "events") if row[4] in times]
    assert same and all(times[row[4]] == row[2] for row in same), "events keep their times"


async def test_the_keys_of_erased_conversations_do_not_go(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    first = fresh_settings(stack, master_keys=new_master("both"))
    await opened(first, "sealed", {"encryption": True})
    folder = tmp_path / "sealed"
    async with running_worker(first), ConversationService(first) as service:
        await service.append("sealed", [("gone", SAY), ("stays", SAY)])
        await Eraser(service, no_text).conversation("sealed", "gone")
        data = folder_of(first, tmp_path / "data")
        await ok("tenants", "export", "sealed", folder, "--data", data)
    assert exported_keys(folder) == {("sealed/gone", False), ("sealed/stays", True)}

    second = fresh_settings(stack, master_keys=first.master_keys)
    await opened(second, "resident")
    await ok("tenants", "import", folder, "--data", folder_of(second, tmp_path / "other"))
    async with running_worker(second) as runtime, ConversationService(second) as service:
        await caught_up(runtime)
        assert "tea" in str(await service.history("sealed", "stays"))
        with pytest.raises(Erased):
            await service.history("sealed", "gone")
        assert await differing(runtime) == []


async def test_a_record_that_cannot_be_read_moves_no_tenant_wrongly_and_stops_none(
    stack: EmbeddedStack, settings: Settings, tmp_path: Path
) -> None:
    await opened(settings, "mover", {"working_budget": 9000})
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    for topic, key, value in (
        ("control", b"generation/live", b"no number"),
        ("control", b"tenant/mover", b"{"),
        ("keys", b"mover/c/erased", b"{"),
    ):
        await producer.send_and_wait(settings.topic(topic), value, key)
    await producer.stop()
    moved, other = tmp_path / "moved", fresh_settings(stack)
    await ok("tenants", "export", "mover", moved, "--data", folder_of(settings, tmp_path / "data"))
    await opened(other, "resident")
    await ok("tenants", "import", moved, "--data", folder_of(other, tmp_path / "other"))
    async with open_control(other) as control:
        assert control.state.tenants["mover"].policy == {"working_budget": 9000}
        assert control.state.keys_of("mover")


async def test_what_is_no_tenants_folder_is_refused(
    stack: EmbeddedStack, settings: Settings, tmp_path: Path
) -> None:
    await opened(settings, "resident")
    data = folder_of(settings, tmp_path / "data")
    whole, one = tmp_path / "whole", tmp_path / "one"
    await ok("backup", "export", whole, "--data", data)
    ran = await cli("tenants", "import", whole, "--data", data)
    assert ran.code == 1 and "is of all tenants" in ran.said
    await ok("tenants", "export", "resident", one, "--data", data)
    assert (await ok("backup", "check", one)).lines[0] == "unharmed events: 0 records"
    for command in (
        ("backup", "import", one, "--data", data),
        ("backup", "export", tmp_path / "next", "--since", one, "--data", data),
    ):
        ran = await cli(*command)
        assert ran.code == 1 and "tenant" in ran.said
    ran = await cli("tenants", "export", "nobody", tmp_path / "none", "--data", data)
    assert ran.code == 1 and "tenant nobody is not known" in ran.said


async def test_a_tenant_of_a_log_that_lost_its_beginning_is_not_exported(
    settings: Settings, tmp_path: Path
) -> None:
    await opened(settings, "mover")
    async with ConversationService(settings) as service:
        (said,) = await service.append("mover", [("c", SAY)])
    place = TopicPartition(settings.topic("events"), said.position.partition)
    async with admin_client(settings) as admin:
        await admin.delete_records({place: RecordsToDelete(before_offset=1)})
    folder = tmp_path / "moved"
    data = folder_of(settings, tmp_path / "data")
    ran = await cli("tenants", "export", "mover", folder, "--data", data)
    assert ran.code == 2, ran
    assert "has lost its first events" in ran.said
    assert not (folder / "manifest.json").exists()


async def test_of_two_exports_into_one_folder_the_second_is_refused(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack)
    await opened(settings, "acme")
    async with ConversationService(settings) as service:
        await service.append("acme", [("c", SAY)] * 3)
    folder = tmp_path / "acme"
    both = (export_tenant(settings, "acme", folder, lambda done, total: None) for _ in range(2))
    ended = await asyncio.gather(*both, return_exceptions=True)
    (refused,) = (one for one in ended if isinstance(one, BaseException))
    assert isinstance(refused, InvalidBackup) and refused.exit_code == 1
    assert str(refused) == f"{folder} is not empty: name a new folder"
    manifest = read_backup(folder).manifest
    files = {saved.file for found in manifest.topics.values() for saved in found}
    assert {path.name for path in folder.iterdir()} == files | {MANIFEST}
