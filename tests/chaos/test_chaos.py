"""A few seeds of ``make chaos`` with every run of the tests: faults under load, and nothing lost,
doubled or different.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.chaos.platform import Stack
from tests.chaos.run import run_seed, tell_failure
from tests.chaos.schedule import Plan, plan_of


@pytest.fixture(scope="module")
async def chaos_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack of its own: its servers are killed here."""
    stack = Stack(tmp_path_factory.mktemp("chaos"))
    yield stack
    await stack.stop()


def small(seed: int) -> Plan:
    """The plan of a seed for a short run: two workers, one gateway, four seconds of load, the first
    three faults.
    """
    plan = plan_of(seed, load=4.0)
    return replace(plan, workers=2, gateways=1, producers=5, faults=plan.faults[:3])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [4, 36])
@pytest.mark.long
async def test_nothing_is_lost_doubled_or_different_under_faults(
    seed: int, chaos_stack: Stack
) -> None:
    plan = small(seed)
    print(f"seed {seed}: {plan}")
    outcome = await run_seed(plan, chaos_stack)
    print(f"seed {seed}: {outcome.seconds:.0f} s: {outcome.told}")
    if not outcome.clean:
        tell_failure(outcome)
    assert outcome.clean, f"seed {seed}: {outcome.reasons[:5]}"
    # At load 20 most answers are unknown; this many show that there was something to lose.
    assert outcome.findings.acknowledged > 10
