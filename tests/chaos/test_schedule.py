"""Seeds are plans: the same for the same seed, and every kind of fault within as many seeds as
there are kinds.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.chaos import run
from tests.chaos.evidence import Findings
from tests.chaos.faults import FAULTS
from tests.chaos.proxy import proxied
from tests.chaos.run import Outcome
from tests.chaos.schedule import KINDS, Plan, plan_of


def test_a_seed_always_gives_the_same_plan_and_seeds_differ() -> None:
    assert plan_of(7) == plan_of(7)
    assert len({str(plan_of(seed)) for seed in range(100)}) == 100


def test_as_many_seeds_as_there_are_kinds_of_faults_have_them_all() -> None:
    assert set(FAULTS) == set(KINDS)
    for first in (0, 37):
        assert {
            fault.kind
            for seed in range(first, first + len(KINDS))
            for fault in plan_of(seed).faults
        } == set(KINDS)


@pytest.mark.parametrize(
    ("lost", "trouble", "code"), [([], [], 0), (["t0/c0: e1"], [], 1), ([], ["no rest"], 1)]
)
async def test_the_last_line_has_the_sums_and_the_exit_code_follows_it(
    monkeypatch: pytest.MonkeyPatch, lost: list[str], trouble: list[str], code: int
) -> None:
    async def played(plan: Plan, stack: object, say: object) -> Outcome:
        return Outcome(plan.seed, Findings(100, list(lost), [], []), list(trouble))

    monkeypatch.setattr(run, "run_seed", played)
    said: list[str] = []
    assert await run.run_seeds([3, 4], said.append) == code
    assert (
        said[-1] == f"seeds: 2, acknowledged: 200, lost: {2 * len(lost)}, doubled: 0, differing:"
        f" {2 * len(trouble)}"
    )
    assert ("make chaos SEED=4" in "\n".join(said)) == (code == 1)


@pytest.mark.parametrize(("given", "expected"), [(True, {True}), (None, {True, False})])
async def test_a_seed_chooses_where_the_memory_store_lies_unless_that_is_said(
    monkeypatch: pytest.MonkeyPatch, given: bool | None, expected: set[bool]
) -> None:
    found: set[bool] = set()

    async def played(plan: Plan, stack: object, say: object) -> Outcome:
        found.add(plan.shared_memory)
        return Outcome(plan.seed)

    monkeypatch.setattr(run, "run_seed", played)
    assert await run.run_seeds(range(10), lambda text: None, shared_memory=given) == 0
    assert found == expected


async def test_the_proxy_forwards_stalls_and_cuts() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with proxied(server.sockets[0].getsockname()[1], 1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        proxy.stall()
        writer.write(b"two")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                raise AssertionError(f"{await reader.read(3)!r} came through a proxy that stalls")
        proxy.heal()
        assert await reader.readexactly(3) == b"two"
        proxy.cut()
        with contextlib.suppress(ConnectionError):
            assert await reader.read(1) == b""
        writer.close()
    server.close()
