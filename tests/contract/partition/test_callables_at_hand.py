"""A process that lacks a policy's callable, or in which it fails: a command says so and writes no
window, a reader shows none.
"""

from __future__ import annotations

import pytest

from projections.errors import CallableFailed, CallableUnavailable
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.storage.stubs import Stub, stub_of
from streams.control.state import Generation
from streams.maintenance.dead_letters import DeadLetters
from streams.maintenance.repair import whole_write
from streams.maintenance.verify import VerifyReport, verify
from streams.recovery.callable_failures import failed_callables, failure_lines
from streams.recovery.revival import Revival
from tests.support.partitions import NUMBER, Parts
from tests.support.quarantines import (
    POLICY,
    Code,
    PartitionlessSink,
    load,
    owner,
    rules_of,
    trapped,
)
from tests.support.snapshots import MemorySnapshots
from threadfold.testing import MemoryLog, MemoryStore


async def folded(code: Code) -> tuple[Parts, Rules]:
    """A partition in which a worker with this code has folded results of a tool."""
    rules = rules_of(code)
    while True:
        parts = Parts(MemoryLog(4), MemoryStore(), None)
        _, raws = await trapped(parts, rules_of(Code()))
        if partition_of(parts.keys[0], 4) == NUMBER:
            break
    await owner(parts, rules, PartitionlessSink()).process(raws)
    return parts, rules


async def verified(parts: Parts, rules: Rules, *, repair: bool = False) -> VerifyReport:
    generation = Generation(parts.generation, 4, {}, {}, "live")
    return await verify(parts.log, parts.store, generation, rules, repair=repair)


def without() -> Rules:
    return Rules(POLICY)


def failing() -> Rules:
    def fails(tool: str, call_id: str, text: str) -> str:
        raise KeyError("ITS_VARIABLE")

    return Rules(POLICY, callables={"fragile": fails})


@pytest.mark.parametrize(
    ("here", "why"), [(without(), "is not registered"), (failing(), "raised KeyError")]
)
async def test_verify_says_what_a_callable_could_not_do_and_repairs_nothing_by_it(
    here: Rules, why: str
) -> None:
    parts, rules = await folded(Code(broken=False))
    key, before = parts.keys[0], await load(parts, rules)
    assert (await verified(parts, rules)).differing == []
    for repair in (False, True):
        report = await verified(parts, here, repair=repair)
        assert (report.differing, report.repaired) == ([str(key)], [])
        assert report.failures == {key: {"fragile": why}}
        assert await load(parts, rules) == before
    (line,) = failure_lines(failed_callables(report.failures))
    assert line.startswith(f"callable 'fragile' {why} here: in 1 conversation, {key} first")
    assert "THREADFOLD_CALLABLES" in line
    again = await verified(parts, rules, repair=True)
    assert (again.differing, again.failures) == ([], {})


async def test_what_no_failing_callable_touched_is_repaired_all_the_same() -> None:
    parts, rules = await folded(Code(broken=False))
    checkpoint = await parts.store.checkpoint(parts.generation, NUMBER)
    assert checkpoint is not None
    gone = whole_write(parts.keys[1], None, 1)
    await parts.store.apply(parts.generation, NUMBER, checkpoint, [gone])
    report = await verified(parts, without(), repair=True)
    assert report.differing == [str(key) for key in parts.keys[:2]]
    assert report.repaired == [str(parts.keys[1])]
    assert (await verified(parts, rules)).differing == []


async def test_a_retry_without_the_callable_changes_nothing() -> None:
    code = Code()
    parts, rules = await folded(code)
    key, before = parts.keys[0], await load(parts, rules)

    async def retry(key: Key, here: Rules) -> object:
        letters = DeadLetters(
            parts.log, parts.log, parts.store, parts.generation, here, PartitionlessSink()
        )
        return (await letters.retry(key))[1]

    for here, why in ((without(), "is not registered"), (failing(), "raised KeyError")):
        with pytest.raises(CallableFailed, match=f"nothing was changed: callable 'fragile' {why}"):
            await retry(key, here)
        assert await load(parts, rules) == before
    code.broken = False
    assert await retry(key, rules) is None
    assert (await verified(parts, rules)).differing == []


async def asleep(parts: Parts) -> dict[Key, Stub]:
    """Stubs of the partition's first two windows, as if they slept and their snapshots were gone."""
    keys = parts.keys[:2]
    stored = (await parts.store.read(parts.generation, NUMBER, keys))[1]
    return {
        key: stub_of(found.fields, 0, b"a record that is gone")
        for key, found in zip(keys, stored, strict=True)
        if found is not None
    }


def revival(parts: Parts, here: Rules, *, strict: bool) -> Revival:
    async def known(generation: int, tenants: set[str]) -> Rules:
        return here

    return Revival(MemorySnapshots(4), parts.log, known, strict=strict)


@pytest.mark.parametrize(
    ("here", "why", "reason"),
    [(without(), "is not registered", "missing"), (failing(), "raised KeyError", "raised")],
)
async def test_a_reader_shows_no_sleeping_window_in_whose_fold_a_callable_failed(
    here: Rules, why: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts, rules = await folded(Code(broken=False))
    right, stubs = await load(parts, rules), await asleep(parts)
    touched, untouched = stubs
    reader = revival(parts, here, strict=True)
    for _ in range(2):
        with pytest.raises(
            CallableUnavailable, match=f"callable 'fragile' of its policy {why}"
        ) as refused:
            await reader.sure(parts.generation, NUMBER, {touched: stubs[touched]})
        assert refused.value.reason == reason
        assert f"conversation {touched.conversation}: " in str(refused.value)
    assert caplog.text.count("reviving hibernating windows") == 1, "the log was read twice"
    found = await reader.sure(parts.generation, NUMBER, {untouched: stubs[untouched]})
    assert found[untouched].load(untouched, NUMBER, rules).image() == right[untouched]
    await reader.stop()


async def test_with_the_callable_a_sleeping_window_is_the_workers() -> None:
    parts, rules = await folded(Code(broken=False))
    right, stubs = await load(parts, rules), await asleep(parts)
    reader = revival(parts, rules, strict=True)
    found = await reader.sure(parts.generation, NUMBER, stubs)
    assert {key: found[key].load(key, NUMBER, rules).image() for key in found} == {
        key: right[key] for key in stubs
    }
    await reader.stop()


async def test_a_worker_brings_its_window_back_though_a_callable_raises_an_error() -> None:
    parts, _ = await folded(Code(broken=False))
    stubs = await asleep(parts)
    worker = revival(parts, failing(), strict=False)
    assert (await worker.sure(parts.generation, NUMBER, stubs)).keys() == stubs.keys()
    await worker.stop()
