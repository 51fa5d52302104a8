"""A generation on real Kafka and Redis that is previewed, built, switched to and left again, while
others read.
"""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from projections.errors import Healing, ThreadfoldError
from projections.events.validation import make_record
from projections.names import Key
from streams.control.control_topic import Control
from streams.control.generations import make_live
from streams.control.halts import Halt
from streams.maintenance.verify import verify
from streams.rebuild.build import left_to_fold
from streams.rebuild.preview import Preview
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.commands import cli, ok
from tests.support.rebuilds import EVENTS, KEYS, POLICY, caught_up, forgotten, images
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.stored_windows import StoredWindows


@pytest.mark.long
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
        "threadfold: there is no generation 99: see `threadfold generations list`",
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


async def test_a_reader_that_has_not_heard_of_a_switch_is_served_nothing_older_than_others(
    runtime: Runtime, settings: Settings
) -> None:
    await until(lambda: caught_up(runtime))
    control, log, key = runtime.control, runtime.log, KEYS[0]
    first = (await control.sync()).live
    deaf = Control(settings)
    deaf.state = copy.copy(control.state)
    early, late = (StoredWindows(runtime.store, one, lambda: log, 0) for one in (control, deaf))
    await late.read(key)
    report = await rebuild(settings, control, log, runtime.store, policy=POLICY, switch=True)
    await until(lambda: served(runtime))
    flat = {"type": "message", "role": "user", "content": "after the switch"}
    await log.append(
        [make_record(key, flat, where="e", now="2026-01-01T00:00:00Z", new_id="after-the-switch")]
    )
    await until(lambda: caught_up(runtime))
    await early.read(key)
    with pytest.raises(Healing):
        await late.read(key)
    assert first is not None
    await rebuild(settings, control, log, runtime.store, number=first, switch=True)
    await until(lambda: served(runtime))
    newest, _ = await early.read(key)
    assert (await late.read(key))[0].latest == newest.latest
    await forgotten(settings, runtime, report.generation)


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


async def test_a_generation_goes_on_where_it_halted_once_it_is_live_again(
    runtime: Runtime, settings: Settings
) -> None:
    # While another one was live, it was folded on beyond that.
    await until(lambda: caught_up(runtime))
    control, store = runtime.control, runtime.store
    live = (await control.sync()).live
    report = await rebuild(settings, control, runtime.log, store)
    halts = {
        number: Halt(number, 5, 1, 2, 5, "a cause", "then") for number in (live, report.generation)
    }
    await control.write({f"halt/{place}": halt for place, halt in enumerate(halts.values())})
    assert list((await control.sync()).halted()) == [0], "that of the live generation"
    await make_live(control, store, report.generation)
    state = await control.sync()
    assert state.halts == {0: halts[live]} and not state.halted()
    await make_live(control, store, live)
    assert not (await control.sync()).halts
    await until(lambda: caught_up(runtime))
    await forgotten(settings, runtime, report.generation)
