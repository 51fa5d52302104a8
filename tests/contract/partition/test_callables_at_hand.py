"""A command whose process lacks a policy's callable, or in which it fails: it says so, and writes no
window.
"""

from __future__ import annotations

import pytest

from projections.errors import CallableFailed
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from streams.control.state import Generation
from streams.maintenance.callable_failures import failure_lines
from streams.maintenance.dead_letters import DeadLetters
from streams.maintenance.repair import whole_write
from streams.maintenance.verify import VerifyReport, verify
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
    (line,) = failure_lines(report.failures)
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
