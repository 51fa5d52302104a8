"""The log under the windows becomes another one: made anew, or without its tail.

Workers notice, and the windows are those of the new log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from projections.errors import Healing, KafkaUnavailable, RedisUnavailable, UnknownConversation
from projections.events.codec import decode_event
from projections.events.types import SummaryEvent
from projections.events.validation import Record, make_record
from projections.names import partition_of
from streams.log.clients import admin_client
from streams.log.kafka_log import KafkaLog
from streams.log.topic_ids import topic_id
from streams.log.topics import create_topics
from streams.recovery import partition_snapshots
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.metrics import read
from tests.support.pipeline import POLICY
from tests.support.streaming import Heard
from tests.support.worker import running_worker, until
from tests.support.worker_process import KEYS, all_applied, count_messages, messages, verified
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService
from threadfold.streaming.tail import Tail


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """A stack of its own: its log loses its tail here."""
    with EmbeddedStack(tmp_path_factory.mktemp("stack")) as running:
        yield running


async def prepared(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    made = fresh_settings(stack, snapshot_events=30, partitions=2, append_timeout=5.0)
    await create_topics(made)
    await open_generation(made, POLICY, acme=None)
    return made


@pytest.fixture
async def settings(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settings]:
    """Two partitions, rounds of snapshots every 30 events of each, summaries."""
    yield await prepared(stack, monkeypatch)


async def make_anew(settings: Settings) -> None:
    """Delete the events topic, and make it again under its name."""
    async with admin_client(settings) as admin:
        await admin.delete_topics([settings.topic("events")])

    async def made() -> bool:
        return settings.topic("events") in await create_topics(settings)

    await until(made)


class Reader:
    """Reads one conversation as a gateway does, all the time, and keeps what it was answered."""

    def __init__(self, backend: ConversationService) -> None:
        self.backend = backend
        self.seen: list[str] = []

    async def read(self) -> None:
        while True:
            try:
                said = (await self.backend.window("acme", KEYS[0].conversation)).meta.digest.hex()
            except (Healing, UnknownConversation, RedisUnavailable) as error:
                said = type(error).__name__
            if not self.seen or self.seen[-1] != said:
                self.seen.append(said)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Reader]:
    async with ConversationService(settings) as backend:
        reader = Reader(backend)
        task = asyncio.create_task(reader.read())
        try:
            yield reader
        finally:
            # Once is not enough: a client of Kafka's can swallow the cancellation in the moment of
            # its answer, and the reader goes on.
            await end_tasks([task])


async def ids_in(log: KafkaLog) -> set[str]:
    """The ids of the messages that the log holds."""
    ends = await log.end_offsets()
    found = set()
    for partition, end in ends.items():
        async for raw in log.scan(partition, 0, end - 1):
            event = decode_event(raw.value or b"")
            if not isinstance(event, SummaryEvent):
                found.add(event.id)
    return found


async def right(settings: Settings, log: KafkaLog, backend: ConversationService, sent: int) -> None:
    """Wait until the windows have the log's events, which are ``sent`` beside summaries, and check
    each against a fold of the log.
    """
    await all_applied(settings, log, backend.store)
    assert (await verified(settings, log, backend.store)).differing == []
    assert await count_messages(log, backend.store, settings) == sent


def old_is_over(seen: list[str], old: str) -> bool:
    """Whether the old window was never served again once something else was."""
    return old not in seen[seen.index(old) + 1 :] if old in seen else True


async def digest(reader: Reader) -> str:
    return (await reader.backend.window("acme", KEYS[0].conversation)).meta.digest.hex()


@pytest.mark.parametrize(
    ("count", "running"),
    [
        pytest.param(40, False, marks=pytest.mark.long, id="shorter-stopped"),
        pytest.param(600, False, marks=pytest.mark.long, id="longer-stopped"),
        pytest.param(40, True, marks=pytest.mark.long, id="shorter-running"),
        pytest.param(600, True, id="longer-running"),
    ],
)
async def test_a_topic_made_anew_is_recognised_and_its_windows_are_those_of_the_new_log(
    settings: Settings, count: int, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = KafkaLog(settings, settings.partitions)
    rng = random.Random(count)
    before = messages(rng, 0, 300)
    # Some of the same ids: in the new log they are no repeats.
    again = [*before[:20], *messages(rng, 1000, count - 20)]
    async with reading(settings) as reader:
        async with running_worker(settings) as worker:
            await log.append(before)
            await all_applied(settings, log, reader.backend.store)
            old = await digest(reader)
            assert replaced(worker) == 0
            if running:
                await changed(settings, log, reader, again, old)
                assert replaced(worker) > 0
        if not running:
            await make_anew(settings)
            await log.append(again)
            async with running_worker(settings) as worker:
                await right(settings, log, reader.backend, count)
                assert replaced(worker) > 0
        async with running_worker(settings, compact=False):
            await right(settings, log, reader.backend, count)
            assert {record.id for record in again} <= await ids_in(log)
            assert old_is_over(reader.seen, old)
    assert re.search("folded (anew|again)", caplog.text)
    await log.stop()


def replaced(worker: Runtime) -> float:
    """How many partitions a worker counts whose log is another one."""
    return read(worker.metrics.page())["threadfold_logs_replaced_total"][()]


async def changed(
    settings: Settings, log: KafkaLog, reader: Reader, again: list[Record], old: str
) -> None:
    """The topic is made anew under a running worker."""
    former = await log.end_offsets()
    await make_anew(settings)

    async def another() -> bool:
        # Until the broker has dropped a partition's former log it takes appends to that, and they
        # go with it.
        try:
            ends = await log.end_offsets()
            return all(ends[number] < end for number, end in former.items() if end > 0)
        except KafkaUnavailable:
            return False

    await until(another)

    async def appended() -> bool:
        try:
            await log.append(again)
        except KafkaUnavailable as error:
            logging.info("not yet: %s", error)
            return False
        return True

    await until(appended)

    async def gone() -> bool:
        return bool(reader.seen) and reader.seen[-1] != old

    await until(gone)
    await right(settings, log, reader.backend, len(again))


async def test_a_topics_id_is_another_one_when_it_was_made_anew(settings: Settings) -> None:
    async with admin_client(settings) as admin:
        name = settings.topic("events")
        first = await topic_id(admin, name)
        assert first is not None
        assert await topic_id(admin, name) == first
        assert await topic_id(admin, settings.topic("control")) not in (None, first)
        assert await topic_id(admin, settings.topic("nowhere")) is None
        await make_anew(settings)

        async def another() -> bool:
            return await topic_id(admin, name) not in (None, first)

        await until(another)


async def test_a_reader_of_a_topic_that_is_made_anew_has_to_begin_anew(
    settings: Settings,
) -> None:
    log, heard, rng = KafkaLog(settings, settings.partitions), Heard(), random.Random(1)
    of_one = [record for record in messages(rng, 0, 100) if record.key == KEYS[0]]
    number = partition_of(KEYS[0], settings.partitions)
    topic = settings.topic("events")
    tail = Tail(settings, topic, settings.partitions, log.end_offsets, log.seals)
    await tail.join(str(KEYS[0]).encode(), heard, [number])
    await log.append(of_one[:5])

    async def all_heard() -> bool:
        return heard.offsets == [0, 1, 2, 3, 4]

    await until(all_heard)
    await make_anew(settings)
    await accepted(log, of_one[:2])

    async def told() -> bool:
        return "the log is not the one it was" in heard.why

    await until(told)
    await tail.stop()
    await log.stop()


def tail_folders(stack: EmbeddedStack, settings: Settings) -> list[Path]:
    assert stack.embedded_kafka is not None
    return sorted((stack.embedded_kafka.data / "log").glob(f"{settings.topic('events')}-*"))


async def restarted(stack: EmbeddedStack) -> None:
    """Kafka runs again, on its port."""
    old = stack.embedded_kafka
    assert old is not None
    again = type(old)(old.data, port=int(old.address.rpartition(":")[2]))
    await asyncio.to_thread(again.start)
    stack.embedded_kafka = again


async def accepted(log: KafkaLog, records: list[Record]) -> None:
    """Append as a producer does: with the same ids until it is acknowledged."""

    async def appended() -> bool:
        try:
            await log.append(records)
        except KafkaUnavailable as error:
            logging.info("once more: %s", error)
            return False
        return True

    await until(appended, 60.0)


@pytest.mark.parametrize(
    ("more", "running"),
    [
        pytest.param(0, False, marks=pytest.mark.long, id="shorter-stopped"),
        pytest.param(300, False, marks=pytest.mark.long, id="longer-stopped"),
        pytest.param(0, True, marks=pytest.mark.long, id="shorter-running"),
        pytest.param(300, True, id="longer-running"),
    ],
)
@pytest.mark.long
async def test_a_log_that_lost_its_tail_is_recognised_and_what_is_appended_once_more_is_applied(
    own_stack: EmbeddedStack,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    running: bool,
    more: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = await prepared(own_stack, monkeypatch)
    log, rng = KafkaLog(settings, settings.partitions), random.Random(more)
    kept, lost, late = messages(rng, 0, 200), messages(rng, 200, 150), messages(rng, 350, more)
    said = {"type": "message", "role": "user", "content": "after the loss"}
    first = make_record(KEYS[0], said, where="event", now="2026-01-01T00:00:00Z", new_id="first")
    kafka = own_stack.embedded_kafka
    assert kafka is not None
    async with reading(settings) as reader, AsyncExitStack() as workers:
        await workers.enter_async_context(running_worker(settings))
        await log.append(kept)
        await all_applied(settings, log, reader.backend.store)
        for folder in tail_folders(own_stack, settings):
            shutil.copytree(folder, tmp_path / folder.name)
        await log.append(lost)
        await all_applied(settings, log, reader.backend.store)
        old = await digest(reader)
        if not running:
            await workers.aclose()
        assert own_stack.embedded_kafka is not None
        await asyncio.to_thread(own_stack.embedded_kafka.kill)
        for folder in tail_folders(own_stack, settings):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / folder.name, folder)
        await restarted(own_stack)
        await accepted(log, [first, *late, *lost[:20]])
        if not running:
            await workers.enter_async_context(running_worker(settings))
        await settled(settings, log, reader, old)
        # What was acknowledged and is gone comes once more, and is no repeat.
        await accepted(log, lost)
        await right(settings, log, reader.backend, len(kept) + 1 + len(late) + len(lost))
        assert old_is_over(reader.seen, old)
    assert "folded anew" in caplog.text
    await log.stop()


async def settled(settings: Settings, log: KafkaLog, reader: Reader, old: str) -> None:
    """Wait until the window of the lost log is not served any more."""

    async def gone() -> bool:
        return reader.seen[-1] != old

    await until(gone, 60.0)
    await all_applied(settings, log, reader.backend.store)
