"""A switch to a smaller budget keeps what summaries hold; one that would lose some of it is refused
until that is accepted. On real Kafka and Redis, by the commands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from projections.events.validation import make_record
from projections.names import Key, partition_of
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.integration.log.test_truncated_log import eaten
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config

KEY = Key("acme", "c1")
SMALLER = {
    **POLICY,
    "working_budget": 200,
    "keep_recent_tokens": 80,
    "summary_max_tokens": 40,
    "reducers": [{"name": "keep_last_n_messages", "n": 4}],
}


async def say(runtime: Runtime, first: int, count: int) -> None:
    await runtime.log.append(
        [
            make_record(
                KEY,
                {"type": "message", "role": "user", "content": f"wish {i}: {i} apples " * 6},
                where="event",
                now="2026-01-01T00:00:00Z",
                new_id=f"e{i}",
            )
            for i in range(first, first + count)
        ]
    )


async def context(*there: Any) -> dict[str, Any]:
    ran = await ok("context", "acme", "c1", *there)
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.mark.long
async def test_a_smaller_policy_keeps_its_summaries_and_a_truncated_log_is_not_switched_to(
    settings: Settings, tmp_path: Path
) -> None:
    await open_generation(settings, POLICY, acme=None)
    write_config(tmp_path / CONFIG_FILE, settings)
    (tmp_path / "smaller.json").write_text(json.dumps(SMALLER))
    (tmp_path / "again.json").write_text(json.dumps({**POLICY, "min_messages": 5}))
    there = ("--data", tmp_path)
    async with running_worker(settings) as runtime:

        async def summarised() -> bool:
            try:
                return (await context(*there))["summary"] is not None
            except AssertionError:
                return False

        await say(runtime, 0, 20)
        await until(summarised)
        before = await context(*there)
        ran = await ok("rebuild", "--policy", tmp_path / "smaller.json", "--switch", *there)
        assert "lost by a switch: nothing" in ran.out and ran.lines[-1].endswith(", live")
        await until(summarised)
        after = await context(*there)
        assert len(after["messages"]) < len(before["messages"])
        assert "left out: " in after["messages"][1]["content"]
        assert after["summary"]["to"] >= before["summary"]["to"]
        # The log loses its first events: no fold can take the summaries of them any more.
        partition = partition_of(KEY, settings.partitions)
        await eaten(settings, {partition: 3})
        env = {"THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
        again = ("rebuild", "--policy", tmp_path / "again.json", "--switch", *there)
        refused = await cli(*again, env=env)
        assert refused.code == 1
        (line,) = [line for line in refused.err.splitlines() if "is not made live" in line]
        assert "(acme/c1: the log has lost its events before offset 3)" in line
        assert "--accept-loss" in line
        assert (
            "a switch would lose: acme/c1: the log has lost its events before offset 3"
            in refused.lines
        )
        assert (await context(*there))["summary"]["to"] >= after["summary"]["to"]
        # However few the report compares, the switch compares all.
        ran = await ok(*again, "--accept-loss", "--sample", "0", "--json", env=env)
        switched = json.loads(ran.out)
        assert switched["live"] and switched["report"] is None
        assert switched["losses"] == [
            {"conversation": "acme/c1", "because": "the log has lost its events before offset 3"}
        ]
