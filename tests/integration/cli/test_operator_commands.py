"""Topics, ``doctor``, tenants and generations by the commands on a real stack, with a worker in this
process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aredis

from streams.log.clients import admin_client
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.command_folder import folder, window_of
from tests.support.commands import COMMAND, clean_env, cli, ok
from tests.support.worker import running_worker, until
from threadfold.embedded.ports import free_port
from threadfold.embedded.stack import EmbeddedStack

WELL = [
    "versions",
    "descriptors",
    "redis",
    "kafka",
    "topics",
    "keys",
    "generation",
    "dead letters",
    "lag",
]
"""What ``doctor`` looks at, in order."""


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


async def test_who_lost_the_log_is_told_to_restore_it_and_not_to_make_an_empty_one(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack)
    data = folder(tmp_path, settings)
    await ok("topics", "create", "--data", data)
    async with admin_client(settings) as admin:
        await admin.delete_topics([settings.topic(name) for name in ("events", "compactions")])

    async def missing() -> list[str]:
        ran = await cli("doctor", "--data", data)
        return [line for line in ran.lines if " is missing" in line] if ran.code == 1 else []

    lost = f"topic {settings.topic('events')} is missing, and its records with it: restore a backup"
    gone = f"topic {settings.topic('compactions')} is missing: run `threadfold topics create`"
    begins = (f"wrong topics: {lost}", f"wrong topics: {gone}", f"wrong generation: {lost}")
    for line, begin in zip(await until(missing), begins, strict=True):
        assert line.startswith(begin)


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
    policy = tmp_path / "own.json"
    policy.write_text('{"working_budget": 900, "keep_recent_tokens": 200}')
    await ok("tenants", "add", "erin", "--policy", policy, "--data", data)
    await ok("tenants", "add", "erin", "--encryption", "on", "--data", data)
    erin = json.loads((await ok("tenants", "show", "erin", "--data", data)).out)
    assert erin["next_policy"] == {
        "working_budget": 900,
        "keep_recent_tokens": 200,
        "encryption": True,
    }, "all else of its policy stays"
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


@pytest.mark.long
async def test_encryption_ends_only_where_a_policy_says_so_and_is_said(
    data: Path, worker: Runtime, tmp_path: Path
) -> None:
    policy, there = tmp_path / "policy.json", ("--data", data)

    async def waiting(command: str, **values: Any) -> tuple[Any, str]:
        policy.write_text(json.dumps(values))
        if command == "add":
            ran = await ok("tenants", "add", "sealed", "--policy", policy, *there)
        else:
            ran = await ok("tenants", "policy", "sealed", policy, *there)
        shown = json.loads((await ok("tenants", "show", "sealed", *there)).out)
        return shown["next_policy"], ran.err

    await ok("tenants", "add", "sealed", "--encryption", "on", *there)
    for command in ("policy", "add"):
        found, said = await waiting(command, min_messages=7)
        assert found == {"min_messages": 7, "encryption": True}
        assert "takes effect with the next generation" in said and "readable" not in said
    dry = await ok("rebuild", "--dry-run", *there)
    assert "does not encrypt" not in dry.err
    found, said = await waiting("policy", min_messages=7, encryption=False)
    assert found == {"min_messages": 7, "encryption": False}
    assert "stays readable in the log" in said
    dry = await ok("rebuild", "--dry-run", *there)
    assert "does not encrypt sealed, as the live one does" in dry.err
    found, said = await waiting("policy", min_messages=8)
    assert found == {"min_messages": 8, "encryption": False}, "that choice waits, too"
    found, said = await waiting("policy", encryption=True)
    assert found is None, "the policy in force takes back the one that waits"


def _truth(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return condition()

    return look


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("conversations", "--waiting", "--tenant", "nobody"),
        ("conversations", "--over-budget", "--tenant", "nobody"),
        ("conversations", "--parked", "--tenant", "nobody"),
        ("renders", "show", "--tenant", "nobody", "--conversation", "c"),
        ("dead-letters", "list", "--tenant", "nobody"),
        ("memories", "verify", "--tenant", "nobody"),
        ("memories", "diff", "--tenant", "nobody"),
    ],
    ids=" ".join,
)
async def test_lists_of_a_tenant_that_is_not_known_say_so(
    data: Path, worker: Runtime, command: tuple[str, ...]
) -> None:
    answer = await cli(*command, "--data", data)
    assert (answer.code, answer.out) == (1, "")
    assert "tenant nobody is not known" in answer.err


async def test_calls_of_a_conversation_that_is_not_known_are_not_an_empty_list(
    data: Path, worker: Runtime
) -> None:
    await ok("tenants", "add", "known", "--data", data)
    listed = await ok("conversations", "--waiting", "--tenant", "known", "--data", data)
    assert listed.out == ""
    answer = await cli(
        "renders", "show", "--tenant", "known", "--conversation", "never", "--data", data
    )
    assert answer.code == 1 and "never is not known" in answer.err


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
    assert [row[5][:-19] for row in rows] == ["last live from: 2", "live since: 2"]
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
