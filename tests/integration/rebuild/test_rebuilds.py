"""Rebuilds in several processes that are killed, begun twice, switched to and back, and what they
report; on real Kafka and Redis.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis.asyncio as aredis

from projections.errors import ThreadfoldError
from projections.events.validation import Record, make_record
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from streams.control import generations
from streams.control.control_topic import Control
from streams.control.generations import GenerationBusy, Hold, begin, drop
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import verify
from streams.rebuild import build_pool
from streams.rebuild.build import Bounds, left_to_fold
from streams.rebuild.build_pool import BuildFailed
from streams.rebuild.preview import Preview
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.pipeline import sentence
from tests.support.processes import alive, children
from tests.support.worker import running_worker, until
from tests.support.worker_process import messages
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config

POLICY = {"min_messages": 8}
KEYS = [Key("acme", f"c{i}") for i in range(60)]
EVENTS = 9_000
OFTEN = Bounds(events=200, seconds=60.0)
"""So that a rebuild that is killed has written something."""


@pytest.fixture(scope="module")
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """A log, all of it in the live generation's windows, and its worker."""
    await open_generation(settings, POLICY, acme=None)
    async with running_worker(settings, compact=False) as running:
        rng = random.Random(11)
        text = [sentence(rng) for _ in range(100)]
        for begin_ in range(0, EVENTS, 3000):
            await running.log.append(
                [
                    make_record(KEYS[rng.randrange(len(KEYS))], {"type": "message", "role": "user", "content": text[i % 100]},
                                where="event", now="2026-01-01T00:00:00Z", new_id=f"e{begin_ + i}")
                    for i in range(3000)
                ]
            )  # fmt: skip
        await until(lambda: caught_up(running), limit=60)
        yield running


async def caught_up(runtime: Runtime) -> bool:
    ends = await runtime.log.end_offsets()
    for partition, end in ends.items():
        checkpoint = await runtime.store.checkpoint(runtime.control.state.live, partition)
        if end and (checkpoint is None or checkpoint.healing or checkpoint.offset < end - 1):
            return False
    return True


async def images(runtime: Runtime, number: int) -> list[bytes | None]:
    rules = runtime.control.state.rules(runtime.control.state.generations[number])
    found = []
    for key in KEYS:
        partition = partition_of(key, runtime.log.partitions)
        _, (stored,) = await runtime.store.read(number, partition, [key])
        found.append(None if stored is None else stored.load(key, partition, rules).image())
    return found


async def written(runtime: Runtime, number: int) -> int:
    """How many records a generation's checkpoints say are folded."""
    checkpoints = [await runtime.store.checkpoint(number, p) for p in range(runtime.log.partitions)]
    return sum(c.offset + 1 for c in checkpoints if c is not None)


async def forgotten(settings: Settings, runtime: Runtime, number: int) -> None:
    """Leave nothing for the next test to go on with."""
    await runtime.control.sync()
    await drop(runtime.control, runtime.store, number)


@pytest.mark.long
async def test_rebuilds_begun_in_the_same_moment_never_share_a_number(
    runtime: Runtime, settings: Settings
) -> None:
    controls = [await Control(settings).start() for _ in range(4)]
    try:
        for turn in range(2):
            begun = await asyncio.gather(
                *(
                    begin(control, {**POLICY, "min_messages": 10 + 4 * turn + i})
                    for i, control in enumerate(controls)
                )
            )
            assert len({generation.number for generation, _ in begun}) == 4
            for control in controls:
                state = await control.sync()
                for generation, resumed in begun:
                    assert not resumed
                    assert state.generations[generation.number] == generation
            for generation, _ in begun:
                await forgotten(settings, runtime, generation.number)
        again = await Control(settings).start()
        assert again.state.claims == controls[0].state.claims
        await again.stop()
    finally:
        for control in controls:
            await control.stop()


@pytest.mark.long
async def test_processes_build_the_same_windows_side_by_side(
    runtime: Runtime, settings: Settings
) -> None:
    seen: list[tuple[int, int]] = []
    report = await rebuild(
        settings,
        runtime.control,
        runtime.log,
        runtime.store,
        jobs=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert report.events == EVENTS
    assert seen[-1] == (EVENTS, EVENTS)
    assert await images(runtime, report.generation) == await images(runtime, 1)
    again = await rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    assert (again.resumed, again.events, again.generation) == (True, 0, report.generation)
    await forgotten(settings, runtime, report.generation)


@pytest.mark.long
async def test_a_process_that_is_killed_ends_the_rebuild_which_goes_on_from_its_checkpoints(
    runtime: Runtime, settings: Settings
) -> None:
    before = set(children(os.getpid()))
    building = asyncio.create_task(
        rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2, bounds=OFTEN)
    )
    number = max(runtime.control.state.claims, default=1) + 1
    victim, other = await one_stopped(os.getpid(), before)
    await until(lambda: some(written(runtime, number)))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(BuildFailed, match="ended by signal 9; what is built stays"):
        await asyncio.wait_for(building, 120)
    assert not alive(other)
    done = await written(runtime, number)
    assert 0 < done < EVENTS
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    assert (report.generation, report.resumed, report.events) == (number, True, EVENTS - done)
    assert await images(runtime, number) == await images(runtime, 1)
    await forgotten(settings, runtime, number)


async def one_stopped(parent: int, before: set[int]) -> list[int]:
    """The two processes of a rebuild once they are there; the first is frozen, so that the rebuild
    is not done before it goes on.
    """

    async def both() -> list[int]:
        found = sorted(set(children(parent)) - before)
        return found if len(found) == 2 else []

    found: list[int] = await until(both)
    os.kill(found[0], signal.SIGSTOP)
    return found


async def some(count: Any) -> bool:
    return await count > 0


PARENT = """
import asyncio, sys
import msgspec
from projections.redis.store import RedisStore
from streams.rebuild.build import Bounds
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings

async def main():
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    control = await Control(settings).start()
    store = RedisStore(settings.redis, settings.topic_prefix)
    await rebuild(settings, control, KafkaLog(settings, settings.partitions), store, jobs=2, bounds=Bounds(events=200, seconds=60.0))

asyncio.run(main())
"""


@pytest.mark.long
async def test_a_rebuild_whose_parent_is_killed_leaves_no_orphan_and_goes_on(
    runtime: Runtime, settings: Settings
) -> None:
    number = max(runtime.control.state.claims, default=1) + 1
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE)  # noqa: ASYNC220 (it is to be killed)
    try:
        assert parent.stdin is not None
        parent.stdin.write(msgspec.json.encode(settings) + b"\n")
        parent.stdin.flush()
        started = await one_stopped(parent.pid, set())
        await until(lambda: some(written(runtime, number)))
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
    os.kill(started[0], signal.SIGCONT)

    async def gone() -> bool:
        return not any(map(alive, started))

    await until(gone)
    done = await written(runtime, number)
    await runtime.control.sync()
    with pytest.raises(GenerationBusy, match=f"generation {number} is being built"):
        async with Hold(runtime.store, number, patience=0.0):
            raise AssertionError("a process that was killed a moment ago has let go")
    client = aredis.Redis.from_url(settings.redis)
    assert (
        0
        < await client.pttl(f"{settings.topic_prefix}:{{{number}:held}}")
        <= generations.HOLD * 1000
    )
    await client.delete(f"{settings.topic_prefix}:{{{number}:held}}")  # what its time does
    await client.aclose()
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store)
    assert (report.generation, report.resumed, report.events) == (number, True, EVENTS - done)
    assert await images(runtime, number) == await images(runtime, 1)
    await forgotten(settings, runtime, number)


@pytest.mark.long
async def test_a_rebuild_that_is_cancelled_writes_what_it_has_folded_and_ends_its_processes(
    runtime: Runtime, settings: Settings
) -> None:
    before = set(children(os.getpid()))
    number = max(runtime.control.state.claims, default=1) + 1
    building = asyncio.create_task(
        rebuild(settings, runtime.control, runtime.log, runtime.store, jobs=2)
    )
    frozen, _ = await one_stopped(os.getpid(), before)
    await until(lambda: some(written(runtime, number)))
    building.cancel()
    os.kill(frozen, signal.SIGCONT)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(building, build_pool.GRACE + 5)
    assert not set(children(os.getpid())) - before
    done = await written(runtime, number)
    assert done > 0
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store)
    assert report.events == EVENTS - done
    await forgotten(settings, runtime, number)


async def test_a_generation_that_is_built_is_not_dropped_and_one_that_was_dropped_is_not_built_on(
    runtime: Runtime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, _ = await begin(runtime.control, {**POLICY, "min_messages": 77})
    with pytest.raises(generations.LiveGeneration):
        await drop(runtime.control, runtime.store, 1)
    monkeypatch.setattr(generations.Hold.__init__, "__kwdefaults__", {"patience": 0.1})
    async with Hold(runtime.store, generation.number):
        with pytest.raises(GenerationBusy):
            await drop(runtime.control, runtime.store, generation.number)
        with pytest.raises(GenerationBusy):
            await rebuild(
                settings, runtime.control, runtime.log, runtime.store, number=generation.number
            )
    assert await drop(runtime.control, runtime.store, generation.number) == 0
    with pytest.raises(generations.UnknownGeneration):
        await rebuild(
            settings, runtime.control, runtime.log, runtime.store, number=generation.number
        )


async def test_a_report_says_what_the_stored_windows_say_and_a_sample_is_stable(
    runtime: Runtime, settings: Settings
) -> None:
    policy = {**POLICY, "working_budget": 900, "keep_recent_tokens": 400, "hard_ceiling": 0.02}
    report = await rebuild(settings, runtime.control, runtime.log, runtime.store, policy=policy)
    state = runtime.control.state
    before, after = (
        state.rules(state.generations[1]),
        state.rules(state.generations[report.generation]),
    )
    preview = Preview(runtime.control, runtime.log, before, after)
    await preview.run()
    found = preview.document(price=2.0)
    differing = [
        a != b
        for a, b in zip(
            await images(runtime, 1), await images(runtime, report.generation), strict=True
        )
    ]
    assert found["conversations"] == {
        "in_log": len(KEYS),
        "in_log_estimated": False,
        "compared": len(KEYS),
        "erased": 0,
    }
    assert found["differing"]["windows"] == sum(differing) > 0
    assert found["events"] == EVENTS
    refused = found["compactions"]
    assert sum(refused["refusals_after"].values()) == refused["refused_after"]
    assert found["tokens"]["after"]["sum"] < found["tokens"]["before"]["sum"]
    assert found["cost"]["before"] == pytest.approx(found["tokens"]["before"]["sum"] / 1e6 * 2.0)
    assert len(found["examples"]) == 3
    assert all(example["diff"] for example in found["examples"])
    samples = []
    for _ in range(2):
        small = Preview(runtime.control, runtime.log, before, after, sample=10)
        await small.run()
        samples.append(small.document())
    assert samples[0] == samples[1]
    assert samples[0]["conversations"]["compared"] == 10
    assert samples[0]["conversations"]["in_log_estimated"]
    assert 15 <= samples[0]["conversations"]["in_log"] <= 240
    assert 700 < samples[0]["events"] < 3_000
    await forgotten(settings, runtime, report.generation)


@pytest.mark.long
async def test_commands_report_build_switch_and_go_back(
    runtime: Runtime, settings: Settings, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, settings)
    (tmp_path / "policy.json").write_text(
        json.dumps(
            {**POLICY, "working_budget": 800, "keep_recent_tokens": 400, "hard_ceiling": 0.02}
        )
    )
    there, before = ("--data", tmp_path), set(runtime.control.state.generations)
    dry = await ok(
        "rebuild",
        "--policy",
        tmp_path / "policy.json",
        "--dry-run",
        "--sample",
        "20",
        "--json",
        *there,
    )
    assert json.loads(dry.out)["report"]["conversations"]["compared"] == 20
    assert set((await runtime.control.sync()).generations) == before
    built = await ok(
        "rebuild",
        "--policy",
        tmp_path / "policy.json",
        "--sample",
        "20",
        "--price",
        "3",
        "--jobs",
        "2",
        *there,
    )
    for part in (
        "compared: 20 of about ",
        "tokens of contexts: ",
        "at 3 a million tokens",
        "compactions due at once",
        "stop applying",
        "note: ",
    ):
        assert part in built.out
    number = max(runtime.control.state.claims)
    assert (
        built.lines[-1]
        == f"generation {number}: {EVENTS} events folded, ready: `threadfold generations switch"
        f" {number}` makes it live"
    )
    switched = await ok("generations", "switch", str(number), *there)
    assert switched.lines == [f"generation {number} (continued): 0 events folded, live"]
    await until(lambda: caught_up(runtime))
    back = await ok("generations", "switch", "1", *there)
    assert back.lines == ["generation 1 (continued): 0 events folded, live"]
    missing = await cli("generations", "switch", "99", *there)
    assert (missing.code, missing.said) == (
        1,
        (
            "threadfold: there is no generation 99: `threadfold generations list` names those"
            " there are"
        ),
    )
    await until(lambda: caught_up(runtime))
    await forgotten(settings, runtime, number)


@pytest.mark.long
async def test_a_switch_that_is_cut_off_anywhere_changes_nothing_or_all_of_it_and_goes_on(
    runtime: Runtime, settings: Settings
) -> None:
    control = await Control(settings).start()
    tenant = (await control.ensure_tenant("acme", {"min_messages": 5})).name
    write, writes = control.write, 0

    async def cut(records: dict[str, Any]) -> None:
        for key, value in records.items():
            nonlocal writes
            if writes == 0:
                raise ConnectionAbortedError
            writes -= 1
            await write({key: value})

    control.write = cut  # type: ignore[method-assign]
    lives, first = [], control.state.live
    for last in range(30):
        writes = last
        try:
            report = await rebuild(settings, control, runtime.log, runtime.store, switch=True)
        except ConnectionAbortedError:
            state = await runtime.control.sync()
            lives.append(state.live)
            # Whatever was written, readers' rules are those their windows were folded under.
            rules = state.rules(state.live_generation).for_conversation(tenant, None)
            assert rules.min_messages == (5 if state.live != first else POLICY["min_messages"])
            continue
        break
    state = await runtime.control.sync()
    assert report.live and state.live == report.generation
    assert lives[0] == first
    assert lives == sorted(lives)
    assert (state.tenants[tenant].policy, state.tenants[tenant].next_policy) == (
        {"min_messages": 5},
        None,
    )
    await until(lambda: caught_up(runtime))
    await control.stop()


@pytest.mark.long
async def test_readers_see_one_generation_or_the_other_through_switches_there_and_back(
    runtime: Runtime, settings: Settings
) -> None:
    from threadfold.service.conversations import ConversationService

    state = await runtime.control.sync()
    first = state.live
    report = await rebuild(
        settings,
        runtime.control,
        runtime.log,
        runtime.store,
        policy={**POLICY, "working_budget": 20_000},
    )
    numbers = (report.generation, first)
    answers, stop = Readers(), asyncio.Event()
    async with ConversationService(settings) as backend, ConversationService(settings) as other:
        tasks = [
            asyncio.create_task(answers.read(each, key, stop))
            for each in (backend, other)
            for key in KEYS[:2]
        ]
        tasks.append(asyncio.create_task(traffic(runtime, stop)))
        for turn in range(4):
            await rebuild(
                settings,
                runtime.control,
                runtime.log,
                runtime.store,
                number=numbers[turn % 2],
                switch=True,
            )
            await until(lambda: served(runtime))
        stop.set()
        await asyncio.gather(*tasks)
    assert answers.wrong == []
    assert answers.count > 50
    assert answers.longest < 5.0
    await until(lambda: caught_up(runtime))
    for number in numbers:
        if number != runtime.control.state.live:
            continue
        record = runtime.control.state.generations[number]
        assert (
            await verify(runtime.log, runtime.store, record, runtime.control.state.rules(record))
        ).differing == []


async def served(runtime: Runtime) -> bool:
    live = runtime.control.state.live
    owned = [p for p in runtime.projector.partitions.values() if p.generation == live]
    return len(owned) == runtime.log.partitions and not any(p.checkpoint.healing for p in owned)


async def traffic(runtime: Runtime, stop: asyncio.Event) -> None:
    for n in range(1_000_000):
        if stop.is_set():
            return
        flat = {"type": "message", "role": "user", "content": f"tick {n}"}
        await runtime.log.append(
            [
                make_record(
                    KEYS[n % 2], flat, where="e", now="2026-01-01T00:00:00Z", new_id=f"tick{n}"
                )
            ]
        )


class Readers:
    """Reads windows all the time: how often it was answered, for how long it was not, and what must
    never be.
    """

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self.wrong: list[str] = []

    async def read(self, backend: Any, key: Key, stop: asyncio.Event) -> None:
        from projections.errors import Healing

        seen, at = -1, asyncio.get_running_loop().time()
        while not stop.is_set():
            try:
                position = (await backend.window(key.tenant, key.conversation)).meta.position
            except Healing:
                await asyncio.sleep(0.002)
                continue
            except ThreadfoldError as error:
                self.wrong.append(repr(error))
                continue
            finally:
                now = asyncio.get_running_loop().time()
            self.longest, at = max(self.longest, now - at), now
            if position < seen:
                self.wrong.append(f"{key} stepped back from {seen} to {position}")
            seen = max(seen, position)
            self.count += 1


async def test_left_to_fold_is_what_the_live_generation_has_and_the_candidate_has_not(
    runtime: Runtime, settings: Settings
) -> None:
    await until(lambda: caught_up(runtime))
    ends = await runtime.log.end_offsets()
    assert await left_to_fold(runtime.control, runtime.log, runtime.store, 999) == ends
    assert (
        sum(
            (
                await left_to_fold(
                    runtime.control, runtime.log, runtime.store, runtime.control.state.live
                )
            ).values()
        )
        == 0
    )


@pytest.mark.long
async def test_a_rebuild_writes_now_and_then_by_bytes_too(settings: Settings) -> None:
    from streams.rebuild.build import Bounds
    from streams.rebuild.rebuild import rebuild

    log = KafkaLog(settings, settings.partitions)
    control, store = (
        await Control(settings).start(),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    async with running_worker(settings, compact=False) as runtime:
        for part in range(10):
            await log.append(
                [
                    Record(r.key, r.id, r.type, r.value)
                    for r in messages(random.Random(7), 100 * part, 100)
                ]
            )
        await until(lambda: caught_up(runtime), limit=60)
    sizes: list[int] = []
    apply = store.apply

    async def counted(generation, partition, checkpoint, writes):  # type: ignore[no-untyped-def]
        sizes.append(sum(len(value) for write in writes for _, value in write.put))
        return await apply(generation, partition, checkpoint, writes)

    stream = log.stream

    async def in_pieces(ranges):  # type: ignore[no-untyped-def]
        async for number, rows in stream(ranges):
            for i in range(0, len(rows), 20):
                yield number, rows[i : i + 20]

    store.apply, log.stream = counted, in_pieces  # type: ignore[method-assign, assignment]
    await rebuild(
        settings,
        control,
        log,
        store,
        policy={**POLICY, "min_messages": 6},
        bounds=Bounds(size=40_000),
    )
    assert len([size for size in sizes if size]) > settings.partitions * 2
    await control.stop()
    await store.close()
    await log.stop()
