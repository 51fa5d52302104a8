"""A log copied into more partitions on real Kafka and Redis: every conversation is what it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from projections.errors import InvalidPosition, UnderMaintenance
from projections.names import parse_position
from streams.encryption.master_keys import new_master
from streams.log.consumer_group import members
from streams.log.topics import create_topics, partition_count
from streams.maintenance.repartition import copy_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.lost_redis import flush
from tests.support.moved_logs import (
    ALL,
    GONE,
    LONG,
    LOOPED,
    MOVING,
    SPILLED,
    TAUGHT,
    announced,
    caught_up,
    differing,
    folder_of,
    shown,
    talk_of_everything,
)
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

SAY = {"type": "message", "role": "user", "content": "hello"}


async def no_workers(settings: Settings) -> None:
    async def gone() -> bool:
        return await members(settings) == 0

    await until(gone)


@pytest.mark.long
async def test_every_conversation_is_the_same_in_more_partitions(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    first = fresh_settings(stack, master_keys=new_master("m"), snapshot_events=50)
    await flush(first)
    await create_topics(first)
    await open_generation(first, MOVING, acme=None, sealed={"encryption": True})
    data, prefix = folder_of(first, tmp_path / "data"), f"{first.topic_prefix}b"
    copy = ("topics", "copy", "--to", prefix, "--partitions", "7", "--data", data)
    async with running_worker(first) as runtime:
        await talk_of_everything(first, runtime)
        before = await shown(first, *ALL)
        assert [type_ for _, type_ in before[LOOPED]["events"]].count("loop.detected") == 1
        assert "memory.saved" in {type_ for _, type_ in before[TAUGHT]["events"]}
        refused = await cli(*copy)
        assert refused.code == 2 and "run: stop them first" in refused.said
        # One worker is in two groups of Kafka.
        assert "threadfold: workers of the group" in refused.said
    await no_workers(first)

    class Cut(Exception):
        """The copy is interrupted."""

    def cut(done: int, total: int) -> None:
        if done == total:
            raise Cut

    with pytest.raises(Cut):
        await copy_topics(first, prefix, 7, cut)
    second = msgspec.structs.replace(first, topic_prefix=prefix, partitions=7)
    target = folder_of(second, tmp_path / "second")
    half = await cli("topics", "create", "--data", target)
    assert half.code == 2 and "is not completely copied to these topics" in half.said
    async with ConversationService(first) as service:
        with pytest.raises(UnderMaintenance):
            await service.append("acme", [("b0", SAY)])
        assert (await shown(first, ALL[0]))[ALL[0]] == before[ALL[0]], "reads go on"

    ran = await ok(*copy)
    again, copied, _ = ran.lines
    assert again.startswith("from an earlier attempt: ")
    assert copied.endswith("events, in the same order, into 7 partitions")
    assert (await ok("topics", "check", "--data", target)).lines == ["topics: ok"]
    async with running_worker(second) as runtime:
        await caught_up(runtime)
        assert await shown(second, *ALL) == before
        assert await differing(runtime) == []
        for topic in ("summaries", "memories"):
            assert await announced(second, topic) == await announced(first, topic) != set()
        async with ConversationService(second) as service:
            assert (await service.append("acme", [("b0", SAY)]))[0].position.partition < 7
            for key in GONE:
                assert service.keys.is_erased(str(key).encode())
            await _reads_a_spilled_result(service)
    await no_workers(second)

    nobody = await cli("topics", "drop", "nope", "--data", data)
    assert nobody.code == 2 and "there are no topics of prefix nope" in nobody.err
    busy = await cli("topics", "drop", prefix, "--data", data)
    assert busy.code == 2 and "neither an unfinished copy" in busy.said
    dropped = await ok("topics", "drop", first.topic_prefix, "--data", target)
    assert f"deleted {first.topic('events')}" in dropped.lines


async def _reads_a_spilled_result(service: ConversationService) -> None:
    history = await service.history(*SPILLED)
    (found,) = [one for one in history["events"] if one["type"] == "tool.result"]
    assert found["position"] in (await service.context(*SPILLED)).decode()
    whole = await service.event_at(*SPILLED, found["position"])
    assert whole["content"] == LONG
    with pytest.raises(InvalidPosition):
        partition, offset = parse_position(found["position"])
        await service.event_at(*SPILLED, f"{partition + 1}-{offset}")


@pytest.mark.long
async def test_what_comes_while_a_copy_begins_is_copied_and_appends_go_on_after_it(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    first = fresh_settings(stack)
    await flush(first)
    await create_topics(first)
    await open_generation(first, {}, acme=None)
    data, prefix = folder_of(first, tmp_path / "data"), f"{first.topic_prefix}b"
    acknowledged = []
    async with ConversationService(first) as service:

        async def say_on() -> None:
            for number in range(10_000):
                said = {**SAY, "id": f"e{number}"}
                await service.append("acme", [(f"c{number % 9}", said)])
                acknowledged.append(f"e{number}")

        saying = asyncio.create_task(say_on())
        report = await copy_topics(first, prefix, 8, lambda done, total: None)
        with pytest.raises(UnderMaintenance):
            await saying
        assert report.events == len(acknowledged) > 0
        ran = await cli("doctor", "--data", data)
        assert ran.code == 1 and "wrong maintenance: appends of all tenants are refused" in ran.out
        await ok("maintenance", "off", "--data", data)
        assert (await ok("maintenance", "show", "--data", data)).out == ""

        async def taken() -> bool:
            return bool(service.control.state.maintenance) is False

        await until(taken)
        await service.append("acme", [("c0", SAY)])
    assert await partition_count(msgspec.structs.replace(first, topic_prefix=prefix)) == 8
    other = await cli("topics", "copy", "--to", prefix, "--partitions", "8", "--data", data)
    assert other.code == 2 and "exist and are in use" in other.said


@pytest.mark.long
async def test_an_unfinished_copy_can_be_dropped(stack: EmbeddedStack, tmp_path: Path) -> None:
    first = fresh_settings(stack)
    await flush(first)
    await create_topics(first)
    await open_generation(first, {}, acme=None)
    data, prefix = folder_of(first, tmp_path / "data"), f"{first.topic_prefix}b"
    async with ConversationService(first) as service:
        await service.append("acme", [("c0", SAY)])

    def cut(done: int, total: int) -> None:
        raise KeyError("interrupted")

    with pytest.raises(KeyError):
        await copy_topics(first, prefix, 8, cut)
    other = await cli("topics", "copy", "--to", prefix, "--partitions", "9", "--data", data)
    assert other.code == 2 and "were begun with 8 partitions" in other.said
    assert len((await ok("topics", "drop", prefix, "--data", data)).lines) == 9
    own = await cli("topics", "drop", first.topic_prefix, "--data", data)
    assert own.code == 2 and "are in use" in own.said
    await ok("topics", "copy", "--to", prefix, "--partitions", "9", "--data", data)
