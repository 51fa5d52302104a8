"""Events that the commands append, play, verify and show on a real stack, and their summaries."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aredis

from projections.names import Key, partition_of
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.command_folder import window_of
from tests.support.commands import clean_env, cli, ok, start
from tests.support.conversations import conversations, write_conversations
from tests.support.worker import until

TIGHT = (
    "working_budget = 600\nkeep_recent_tokens = 200\nmin_messages = 4\nsummary_max_tokens = 150\n"
)
"""A tenant's policy under which nearly every conversation is compacted."""


PEAK = """
import resource, sys
from threadfold.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
"""
"""Runs a command, then says the most memory it had, in MiB (of Linux, which counts in KiB)."""


@pytest.fixture(scope="module")
async def tight(data: Path, worker: Runtime, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tenant whose conversations are compacted early."""
    policy = tmp_path_factory.mktemp("policy") / "tight.toml"
    policy.write_text(TIGHT)
    await ok("tenants", "add", "tight", "--policy", policy, "--data", data)
    return "tight"


async def log_ends(worker: Runtime) -> int:
    assert worker.log is not None
    return sum((await worker.log.end_offsets()).values())


CALL = '{"id": "a", "type": "function", "function": {"name": "%s", "arguments": "{}"}}'
LINES = f"""
{{"role": "system", "content": "Be short."}}
{{"role": "user", "content": "Two things, please."}}

{{"role": "assistant", "content": null, "tool_calls": [{CALL % "f"}, {CALL % "g"}]}}
{{"role": "tool", "tool_call_id": "a", "content": "one"}}
{{"type": "tool.result", "tool_call_id": "a", "content": "two"}}
{{"type": "suspension", "suspension_id": "s", "kind": "approval", "prompt": "Really?"}}
{{"role": "assistant", "content": "Done."}}
"""


async def test_appended_lines_come_back_in_every_format(data: Path, worker: Runtime) -> None:
    positions = (await ok("append", "t", "formats", "--data", data, text=LINES)).lines
    assert len(positions) == 7
    assert [int(each.split("-")[1]) for each in positions] == sorted(
        int(each.split("-")[1]) for each in positions
    )
    document = await window_of(data, "t", "formats", 7)
    assert [message["role"] for message in document["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert document["position"] == positions[-1]

    claude = json.loads(
        (await ok("context", "t", "formats", "--format", "anthropic", "--data", data)).out
    )
    assert claude["system"] == "Be short."
    assert [message["role"] for message in claude["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    calls = [block["id"] for block in claude["messages"][1]["content"]]
    assert len(set(calls)) == 2
    assert [block["tool_use_id"] for block in claude["messages"][2]["content"]] == calls

    events = json.loads(
        (await ok("context", "t", "formats", "--format", "events", "--data", data)).out
    )["messages"]
    assert [event["type"] for event in events] == ["message"] * 3 + ["tool.result"] * 2 + [
        "suspension",
        "message",
    ]
    assert [event["position"] for event in events] == positions
    again = await ok(
        "append",
        "t",
        "again",
        "-",
        "--data",
        data,
        text="".join(json.dumps(_sendable(e)) + "\n" for e in events),
    )
    assert len(again.lines) == 7
    assert (await window_of(data, "t", "again", 7))["messages"] == document["messages"]


def _sendable(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "position"}


async def test_history_pages_back_to_the_first_event(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text(
        "".join(json.dumps({"role": "user", "content": f"message {i}"}) + "\n" for i in range(10))
    )
    positions = (await ok("append", "t", "pages", file, "--data", data)).lines
    await window_of(data, "t", "pages", 10)
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = json.loads(
            (await ok("history", "t", "pages", "--limit", "4", *cursor, "--data", data)).out
        )
        seen += [event["position"] for event in page["events"]]
        if page["next_before"] is None:
            break
        cursor = ["--before", page["next_before"]]
    assert seen == positions[::-1]
    unknown = await cli("context", "t", "nothing", "--data", data)
    assert unknown.code == 1 and "conversation nothing is not known" in unknown.said
    wrong = await cli("history", "t", "again", "--before", "nonsense", "--data", data)
    assert wrong.code in (1, 2)
    assert wrong.said.startswith("threadfold: ")


async def test_a_wrong_line_appends_nothing_at_all(data: Path, worker: Runtime) -> None:
    before = await log_ends(worker)
    good = '{"role": "user", "content": "hi"}\n'
    for bad, message in (
        (
            '{"type": "message", "role": "user", "content": "x", "colour": 1}',
            "line 502: field colour: unknown to message",
        ),
        ('{"type": "tool.result", "content": "x"}', "line 502: field tool_call_id: missing"),
        ('{"type": "summary.erased"}', "line 502: field type:"),
        (
            '{"type": "conversation.opened", "policy": {"min_message": 3}}',
            "line 502: field policy:",
        ),
    ):
        ran = await cli(
            "append", "t", "nothing", "--data", data, text="\n" + good * 500 + bad + "\n"
        )
        assert ran.code == 2
        assert message in ran.said
        assert ran.out == ""
    assert await log_ends(worker) == before
    refused = await cli(
        "append", "mistyped", "nothing", "--data", data, text='{"role": "user", "content": 5}\n'
    )
    assert refused.code == 2 and "is created" not in refused.err
    assert "mistyped" not in (await ok("tenants", "list", "--data", data)).out
    for command in ("context", "erase"):
        unknown = await cli(command, "nobody", "nothing", "--data", data)
        assert unknown.code == 1 and "tenant nobody is not known" in unknown.said


async def test_the_airline_conversations_are_played_and_verified(
    airline: Path, data: Path, worker: Runtime, tight: str
) -> None:
    played = await ok("play", airline, "--tenant", tight, "--data", data)
    assert played.lines[-1].startswith("played: 2526 events, 100 conversations, ")
    verified = await ok("verify", "--all", "--data", data)
    assert verified.lines[-1].endswith(", differing: 0")
    assert int(verified.lines[-1].split(",")[0].split()[-1]) >= 100


@pytest.mark.long
async def test_generated_conversations_are_played_once_however_often(
    data: Path, worker: Runtime, tight: str, tmp_path: Path
) -> None:
    count = write_conversations(tmp_path / "file", conversations(12))
    first = await ok("play", tmp_path / "file", "--tenant", tight, "--copies", "2", "--data", data)
    assert first.lines[-1].startswith(f"played: {2 * count} events, 24 conversations, ")
    before = await messages_in_log(worker)
    second = await ok("play", tmp_path / "file", "--tenant", tight, "--copies", "3", "--data", data)
    assert f"({2 * count} existed already)" in second.lines[-1]
    assert await messages_in_log(worker) == before + count
    assert (await ok("verify", "--data", data)).lines[-1].endswith(", differing: 0")


async def messages_in_log(worker: Runtime) -> int:
    """Records that are no summaries: those come by themselves, later."""
    assert worker.log is not None
    found = 0
    for partition, end in (await worker.log.end_offsets()).items():
        async for raw in worker.log.scan(partition, 0, end - 1):
            found += b'"threadfold.summary.v1"' not in (raw.value or b"")
    return found


@pytest.mark.long
async def test_a_play_that_was_killed_goes_on_where_it_was(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    count = write_conversations(tmp_path / "file", conversations(8, seed=5, name="cut"))
    before = await messages_in_log(worker)
    process = await start(
        "play", tmp_path / "file", "--tenant", "cut", "--rate", "20", "--data", data
    )

    async def some() -> bool:
        return await messages_in_log(worker) > before + 40

    await until(some)
    process.kill()
    await process.communicate()
    between = await messages_in_log(worker)
    assert before < between < before + count
    played = await ok("play", tmp_path / "file", "--tenant", "cut", "--data", data)
    assert played.lines[-1].startswith(f"played: {count} events, 8 conversations, ")
    assert "existed already" in played.lines[-1]
    assert await messages_in_log(worker) == before + count
    for each in conversations(8, seed=5, name="cut"):
        document = json.loads(
            (await ok("context", "cut", each["conversation"], "--data", data)).out
        )
        assert document["count"] >= len(each["messages"])


async def test_verify_finds_a_window_that_was_changed(
    settings: Settings, data: Path, worker: Runtime
) -> None:
    await ok(
        "append",
        "t",
        "victim",
        "--data",
        data,
        text='{"role": "user", "content": "one"}\n{"role": "user", "content": "two"}',
    )
    await window_of(data, "t", "victim", 2)
    key = Key("t", "victim")
    generation = worker.control.state.live
    window = (
        f"{settings.topic_prefix}:{{{generation}:{partition_of(key, settings.partitions)}}}:w:{key}"
    )
    async with aredis.Redis.from_url(settings.redis) as client:
        kept = await client.hget(window, "0")
        await client.hdel(window, "0")
        try:
            ran = await cli("verify", "--all", "--data", data)
        finally:
            await client.hset(window, "0", kept)
    assert ran.code == 1
    assert any(line.startswith("differs: t/victim at ") for line in ran.lines)
    assert ran.lines[-1].endswith(", differing: 1")
    sampled = await ok("verify", "--sample", "3", "--deep", "--data", data)
    assert sampled.lines == ["verified: 3, differing: 0"]


async def wait_for_summary(data: Path, tenant: str) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in (await ok("summaries", "--tenant", tenant, "--data", data)).lines
        ]

    found: list[dict[str, Any]] = await until(look, limit=60, what="a summary")
    return found


async def test_summaries_are_printed_as_stored_and_filtered_by_tenant(
    data: Path, worker: Runtime, tight: str, tmp_path: Path
) -> None:
    write_conversations(tmp_path / "file", conversations(3, seed=9, name="sum"))
    await ok("play", tmp_path / "file", "--tenant", tight, "--data", data)
    found = await wait_for_summary(data, tight)
    assert all(
        each["type"] == "threadfold.summary.v1" and each["source"].startswith(f"/tenants/{tight}/")
        for each in found
    )
    assert (await ok("summaries", "--tenant", "nobody", "--data", data)).out == ""


@pytest.mark.long
async def test_following_gives_only_new_summaries_and_ends_with_ctrl_c(
    data: Path, worker: Runtime, tight: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    _, before, _ = await cli("summaries", "--tenant", tight, "--data", data)
    told = {json.loads(line)["id"] for line in before.splitlines()}
    follower = await start("summaries", "--follow", "--tenant", tight, "--data", data)
    assert follower.stdout is not None
    try:
        line: asyncio.Task[bytes] = asyncio.create_task(follower.stdout.readline())
        for n in range(60):  # until one comes after the follower has taken its place at the end
            write_conversations(file, conversations(1, seed=100 + n, name=f"follow{n}"))
            await ok("play", file, "--tenant", tight, "--data", data)
            await asyncio.wait([line], timeout=0.5)
            if line.done():
                break
        assert json.loads(await line)["id"] not in told
    finally:
        follower.send_signal(signal.SIGINT)
        _, err = await follower.communicate()
    assert follower.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in another unit")
async def test_a_long_file_is_appended_in_little_more_memory_than_its_bytes(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    peaks = []
    for many in (1, 20_000):
        file = tmp_path / f"{many}.jsonl"
        file.write_text('{"role": "user", "content": "Where is my order?"}\n' * many)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PEAK, "append", "t", f"long-{many}", file, "--data", data),
            env=clean_env(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert len(out.split()) == many, err.decode()
        peaks.append(int(err.split()[-1]))
    assert peaks[1] - peaks[0] < 60, peaks
