"""The commands on a real stack, with a worker in this process; those that are interrupted are
processes of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aredis

from projections.names import Key, partition_of
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.commands import COMMAND, clean_env, cli, ok, start
from tests.support.conversations import conversations, write_conversations
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.ports import free_port
from threadfold.embedded.stack import EmbeddedStack

WELL = ["versions", "descriptors", "redis", "kafka", "topics", "generation", "dead letters", "lag"]
"""What ``doctor`` looks at, in order."""
TIGHT = (
    "working_budget = 600\nkeep_recent_tokens = 200\nmin_messages = 4\nsummary_max_tokens = 150\n"
)
"""A tenant's policy under which nearly every conversation is compacted."""


def folder(path: Path, settings: Settings) -> Path:
    """A folder as ``up`` leaves one, for ``--data``."""
    path.mkdir(exist_ok=True)
    write_config(path / CONFIG_FILE, settings)
    return path


@pytest.fixture(scope="module")
async def data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("stack"), settings)


@pytest.fixture(scope="module")
async def worker(settings: Settings) -> AsyncIterator[Runtime]:
    async with running_worker(settings) as runtime:
        yield runtime


@pytest.fixture(scope="module")
async def tight(data: Path, worker: Runtime, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tenant whose conversations are compacted early."""
    policy = tmp_path_factory.mktemp("policy") / "tight.toml"
    policy.write_text(TIGHT)
    await ok("tenants", "add", "tight", "--policy", policy, "--data", data)
    return "tight"


async def window_of(data: Path, tenant: str, conversation: str, count: int) -> dict[str, Any]:
    """The context document, once the window holds ``count`` events."""

    async def look() -> dict[str, Any] | None:
        ran = await cli("context", tenant, conversation, "--data", data)
        document: dict[str, Any] | None = json.loads(ran.out) if ran.code == 0 else None
        return document if document is not None and document["count"] >= count else None

    found: dict[str, Any] = await until(look, what=f"{count} events in {conversation}")
    return found


async def log_ends(worker: Runtime) -> int:
    assert worker.log is not None
    return sum((await worker.log.end_offsets()).values())


# -- topics, doctor, tenants
# ------------------------------------------------------------------------------------------


async def test_topics_are_checked_created_and_left_alone(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    data = folder(tmp_path, fresh_settings(stack))
    before = await cli("topics", "check", "--data", data)
    assert before.code == 1
    assert len(before.lines) == 9
    assert all(
        line.startswith("wrong: topic ") and "threadfold topics create" in line
        for line in before.lines
    )
    made = await ok("topics", "create", "--data", data)
    assert [line.split()[0] for line in made.lines] == ["created"] * 9 + ["topics:"]
    assert (await ok("topics", "create", "--data", data)).lines == ["topics: ok"]
    assert (await ok("topics", "check", "--data", data)).lines == ["topics: ok"]


async def test_doctor_finds_a_worker_missing_and_a_stack_that_is_well(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack, session_timeout=6.0)
    data = folder(tmp_path, settings)
    assert (await cli("doctor", "--data", data)).code == 1  # no topics yet
    await ok("topics", "create", "--data", data)
    async with aredis.Redis.from_url(settings.redis) as client:
        await client.flushdb()
    assert (await ok("doctor", "--data", data)).lines[-1] == "ok    lag: none: 0 events applied"
    await ok("append", "t", "c", "--data", data, text='{"role": "user", "content": "hi"}')
    sick = await cli("doctor", "--data", data)
    assert sick.code == 1
    assert "1 events behind and stands still" in sick.lines[-1]
    async with running_worker(settings):
        await window_of(data, "t", "c", 1)
        well = await ok("doctor", "--data", data)
    assert [line.split(":")[0] for line in well.lines] == [f"ok    {what}" for what in WELL]
    assert "a gateway raises it to" in well.lines[1]


async def test_redis_away_is_one_line(data: Path, worker: Runtime) -> None:
    env = {"THREADFOLD_REDIS": f"redis://127.0.0.1:{free_port()}/0"}
    for command in (["context", "t", "c"], ["verify"], ["rebuild"]):
        ran = await cli(*command, "--data", data, env=env)
        assert ran.code == 2
        assert "Redis at redis://127.0.0.1:" in ran.said


async def test_tenants_add_prints_the_key_alone_and_revoke_takes_it_back(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    added = await ok("tenants", "add", "alice", "--scopes", "read,admin", "--data", data)
    assert added.err.startswith("tenant alice is not encrypted: an erasure ")
    assert added.out.startswith("tf_")
    assert len(added.lines) == 1
    await until(
        _truth(
            lambda: (
                (key := worker.control.state.key_of(added.lines[0])) is not None
                and key.tenant == "alice"
            )
        )
    )
    assert (await ok("tenants", "add", "alice", "--data", data)).err == "", "said once"
    row = next(
        line
        for line in (await ok("tenants", "list", "--data", data)).lines
        if line.startswith("alice\t")
    )
    assert "keys: 2" in row
    assert "admin" in row
    assert added.lines[0] not in row
    assert (await ok("tenants", "revoke", "alice", "--data", data)).out == "revoked: 2\n"
    await until(_truth(lambda: worker.control.state.key_of(added.lines[0]) is None))
    for args in (
        ["--expires", "1d", "--key-name", "ci", "--scopes", "erase"],
        ["--expires", "2099-01-01T00:00:00Z"],
    ):
        await ok("tenants", "add", "carol", *args, "--data", data)
    listed = [
        json.loads(line) for line in (await ok("tenants", "list", "--json", "--data", data)).lines
    ]
    carol = next(each for each in listed if each["name"] == "carol")
    shown = {each["name"]: each for each in carol["keys"]}
    assert (shown["ci"]["scopes"], shown["ci"]["expired"]) == (["erase"], False)
    assert shown[None]["expires_at"] == "2099-01-01T00:00:00Z"
    assert (
        await ok("tenants", "revoke", "carol", "--key", shown["ci"]["id"], "--data", data)
    ).out == "revoked: 1\n"
    text = (await ok("tenants", "list", "--data", data)).out
    assert "carol\tkeys: 1\tscopes: append,read,subscribe" in text
    assert (
        f"  {shown[None]['id']}\tscopes: append,read,subscribe\texpires: 2099-01-01T00:00:00Z"
        in text
    )
    none = await cli("tenants", "revoke", "carol", "--key", "abc", "--data", data)
    assert none.code == 1
    assert "no key 'abc'" in none.said
    sealed = await ok("tenants", "add", "dora", "--encryption", "on", "--data", data)
    assert (sealed.err, len(sealed.lines)) == ("", 1)
    policy = tmp_path / "policy.json"
    policy.write_text('{"min_messages": 7}')
    ran = await ok("tenants", "policy", "carol", policy, "--data", data)
    assert "waits for the next generation" in ran.out
    listed = [
        json.loads(line) for line in (await ok("tenants", "list", "--json", "--data", data)).lines
    ]
    shown = {each["name"]: each for each in listed}
    assert shown["carol"]["next_policy"] == {"min_messages": 7} and len(shown["carol"]["keys"]) == 1
    assert (shown["dora"]["encryption"], shown["carol"]["encryption"]) == (True, False)
    text = (await ok("tenants", "list", "--data", data)).out
    assert "policy: - (next: min_messages)" in text
    unknown = await cli("tenants", "revoke", "nobody", "--data", data)
    assert unknown.code == 1
    assert "nobody is not known" in unknown.said


def _truth(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return condition()

    return look


# -- append, context, history
# ------------------------------------------------------------------------------------------

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


# -- play, verify, rebuild
# ------------------------------------------------------------------------------------------


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


@pytest.mark.long
async def test_a_generation_is_rebuilt_switched_to_and_the_old_one_dropped(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    await ok("append", "t", "rebuilt", "--data", data, text='{"role": "user", "content": "one"}')
    before = await window_of(data, "t", "rebuilt", 1)
    policy = tmp_path / "policy.json"
    policy.write_text('{"working_budget": 25000}')
    first = await ok("rebuild", "--policy", policy, "--data", data)
    assert first.lines[-1].startswith("generation 2: ")
    assert "ready" in first.out
    assert [
        line.split("\t")[:2] for line in (await ok("generations", "list", "--data", data)).lines
    ] == [["1", "live"], ["2", "ready"]]
    assert "live" in (await ok("rebuild", "--policy", policy, "--switch", "--data", data)).out
    rows = [line.split("\t") for line in (await ok("generations", "list", "--data", data)).lines]
    assert [row[:2] for row in rows] == [["1", "retired"], ["2", "live"]]
    assert all(row[4].startswith("created: 2") for row in rows)
    assert all(row[5].startswith("live since: 2") for row in rows)
    refused = await cli("generations", "drop", "2", "--data", data)
    assert refused.code == 2
    assert "generation 2 is live" in refused.said
    assert (await ok("generations", "drop", "1", "--data", data)).out.startswith(
        "dropped generation 1: "
    )
    gone = await cli("generations", "drop", "1", "--data", data)
    assert gone.code == 1
    after = await window_of(data, "t", "rebuilt", 1)
    assert after["budget"] == 25_000
    assert after["digest"] == before["digest"]
    await ok("append", "t", "rebuilt", "--data", data, text='{"role": "user", "content": "two"}')
    await window_of(data, "t", "rebuilt", 2)


async def test_a_policy_that_does_not_hold_is_named(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text("working_bugdet = 3\n")
    for command in (["rebuild"], ["tenants", "add", "t"]):
        ran = await cli(*command, "--policy", tmp_path / "p.toml", "--data", data)
        assert ran.code == 2
        assert "working_bugdet" in ran.said


# -- summaries
# ------------------------------------------------------------------------------------------


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


async def test_a_reader_that_goes_away_is_no_error(data: Path, worker: Runtime) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "tenants",
            "list",
            "--data",
            str(data),
            env=clean_env(),
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
    finally:
        os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
