"""Tenants that are made and changed in two places at once: every process sees the same record, and no
change is lost.
"""

from __future__ import annotations

import asyncio

import pytest

from projections.errors import TenantExists
from streams.control.control_topic import Control
from streams.control.state import State
from streams.settings.quotas import NO_QUOTA, Quota, Tenant, read_quota
from streams.settings.settings import Settings
from tests.support.grep import raw_records

SEALED = {"encryption": True}


async def _both(settings: Settings) -> tuple[Control, Control]:
    one, two = await asyncio.gather(Control(settings).start(), Control(settings).start())
    await one.ensure_generation(settings.partitions)
    return one, two


async def _told_anew(settings: Settings, name: str) -> tuple[Tenant, Tenant]:
    """A tenant's record as a process reads it that starts now, and as one does that finds each
    key's last record only (compaction).
    """
    control = await Control(settings).start()
    try:
        whole = control.state.tenants[name]
        last = State()
        for key, value in dict(await raw_records(settings, "control")).items():
            last.put(key, value)
        return whole, last.tenants[name]
    finally:
        await control.stop()


@pytest.mark.long
async def test_a_tenant_made_in_two_places_at_once_keeps_the_policy_of_whoever_was_answered_that_it_was_made(
    settings: Settings,
) -> None:
    one, two = await _both(settings)
    made = 0
    try:
        for i in range(12):
            name = f"made-twice-{i}"
            first, second = await asyncio.gather(
                one.new_tenant(name, SEALED, NO_QUOTA),
                two.new_tenant(name, {}, NO_QUOTA),
                return_exceptions=True,
            )
            assert sorted(isinstance(each, TenantExists) for each in (first, second)) == [
                False,
                True,
            ]
            expected = {} if isinstance(first, TenantExists) else SEALED
            made += expected == SEALED
            assert [(await each.sync()).tenants[name].policy for each in (one, two)] == [
                expected,
                expected,
            ]
            assert [each.policy for each in await _told_anew(settings, name)] == [
                expected,
                expected,
            ]
    finally:
        await one.stop()
        await two.stop()


async def test_a_first_event_does_not_take_encryption_from_a_tenant_that_is_made_at_that_moment(
    settings: Settings,
) -> None:
    one, two = await _both(settings)
    try:
        for i in range(12):
            name = f"made-while-speaking-{i}"
            made, spoken = await asyncio.gather(
                one.new_tenant(name, SEALED, NO_QUOTA),
                two.ensure_tenant(name),
                return_exceptions=True,
            )
            assert isinstance(spoken, Tenant)
            expected = {} if isinstance(made, TenantExists) else SEALED
            assert spoken.policy == expected
            assert [each.policy for each in await _told_anew(settings, name)] == [
                expected,
                expected,
            ]
    finally:
        await one.stop()
        await two.stop()


@pytest.mark.parametrize("apart", [True, False], ids=["in two gateways", "in one gateway"])
async def test_changes_of_a_tenant_at_the_same_moment_are_all_kept(
    settings: Settings, apart: bool
) -> None:
    one, two = await _both(settings)
    other = two if apart else one
    name = f"changed-{apart}"
    try:
        await one.new_tenant(name, {}, NO_QUOTA)
        for i in range(1, 6):
            await asyncio.gather(
                one.change_tenant(
                    name, None, lambda old, i=i: read_quota({"requests_per_second": i}, old)
                ),  # type: ignore[misc]
                other.change_tenant(name, {"min_messages": 30 + i}, None),
                other.change_tenant(name, None, lambda old, i=i: read_quota({"streams": i}, old)),  # type: ignore[misc]
            )
            for told in await _told_anew(settings, name):
                assert told.next_policy == {"min_messages": 30 + i}
                assert told.quota == Quota(requests_per_second=float(i), streams=i)
    finally:
        await one.stop()
        await two.stop()
