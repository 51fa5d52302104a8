"""``conversations`` and ``top`` on real Kafka and Redis: those over budget, parked, and that wait;
and what their worker reports.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from projections.names import Key, partition_of
from streams.log.topics import create_topics
from streams.metrics import reports
from streams.settings.settings import Settings
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY, append, applied, sentence
from tests.support.raw_records import put_raw
from tests.support.terminal import terminal
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config

LONG, POISONED, ASKING = Key("acme", "long"), Key("acme", "poisoned"), Key("beta", "asking")


async def test_conversations_are_listed_by_what_they_need_and_top_draws_what_goes_on(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "EVERY", 0.5)
    await create_topics(settings)
    await open_generation(settings, POLICY, acme=None, beta=None)
    write_config(tmp_path / CONFIG_FILE, settings)
    rng = random.Random(1)
    said = [{"type": "message", "role": "user", "content": sentence(rng)} for _ in range(60)]
    async with running_worker(settings, compact=False) as runtime:
        await append(runtime, LONG, said)
        asked = {"type": "suspension", "suspension_id": "s", "kind": "approval", "prompt": "well?"}
        sent = await append(runtime, ASKING, [said[0], asked])
        await applied(runtime, sent[-1])
        at = partition_of(POISONED, settings.partitions)
        (bad,) = await put_raw(settings, "events", (at, str(POISONED).encode(), b"{"))

        async def listed(*options: str) -> list[list[str]]:
            ran = await ok("conversations", *options, "--data", tmp_path)
            return [line.split("\t") for line in ran.lines]

        async def due() -> bool:
            return bool(await listed("--over-budget"))

        await until(due)
        assert [row[0] for row in await listed("--over-budget")] == ["acme/long"]
        assert await listed("--over-budget", "--tenant", "beta") == []
        ((name, state, _),) = await listed("--waiting")
        assert (name, state) == ("beta/asking", "awaiting_approval")

        async def parked() -> list[list[str]]:
            return await listed("--parked")

        ((name, position, waiting, cause),) = await until(parked)
        assert (name, position, waiting) == ("acme/poisoned", f"{at}-{bad.offset}", "0")
        assert "is not an event" in cause

        await runtime.show_metrics()

        async def shown() -> list[str]:
            lines = (await ok("top", "--once", "--data", tmp_path)).lines
            found = [" ".join(line.split()) for line in lines]
            return found if "conversations due 1" in found else []

        found = await until(shown, what="the worker's report")
        assert "workers 1" in found and "dead letters 1" in found
        assert "model cost today 0.0000" in found

        async with terminal("top", "--every", "0.2", "--data", tmp_path) as screen:
            await screen.shows(r"workers +1\b")
            await append(runtime, LONG, said, start=len(said))
            assert await screen.shows(r"events applied +(?!0\.0/)[\d.,]+/s")
            assert await screen.interrupt() == 130
    for given in ([], ["--parked", "--waiting"]):
        ran = await cli("conversations", *given, "--data", tmp_path)
        assert ran.code == 2 and "give one of --over-budget" in ran.said
