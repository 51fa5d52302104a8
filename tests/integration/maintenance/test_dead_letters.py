"""Poison on a real stack: quarantined by itself, shown to readers, and listed, looked at, tried
again and dropped by the commands.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import msgspec
import pytest
import redis.asyncio as aredis

from projections.errors import Erased
from projections.names import Key, Position, partition_of
from projections.storage.layout import HEAD
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.commands import cli
from tests.support.fragile_policy import FRAGILE, message
from tests.support.generations import open_generation
from tests.support.pipeline import append, applied
from tests.support.raw_records import put_raw
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.gateway import create_gateway
from threadfold.service import letters
from threadfold.service.conversation_list import conversations
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser


@pytest.fixture(scope="module")
async def poisoned(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, callables={"shorten": "tests.support.fragile:broken"})


@pytest.fixture(scope="module")
async def runtime(poisoned: Settings) -> AsyncIterator[Runtime]:
    await open_generation(poisoned, FRAGILE)
    async with running_worker(poisoned, compact=False) as running:
        yield running


@pytest.fixture(scope="module")
def data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stack")
    write_config(path / CONFIG_FILE, settings)
    return path


async def command(data: Path, *args: str, release: str = "broken") -> Any:
    env = {"THREADFOLD_CALLABLES": json.dumps({"shorten": f"tests.support.fragile:{release}"})}
    return await cli(*args, "--data", data, env=env)


async def put(
    runtime: Runtime, key: Key, value: bytes | None, name: bytes | None = None
) -> Position:
    partition = partition_of(key, runtime.log.partitions)
    row = (partition, name or str(key).encode(), value)
    (sent,) = await put_raw(runtime.settings, "events", row)
    return Position(partition, sent.offset)


async def check(runtime: Runtime) -> list[str]:
    record = runtime.control.state.generations[1]
    report = await verify(runtime.log, runtime.store, record, runtime.control.state.rules(record))
    return [f"{found.key} at {found.position}: {found.what}" for found in report.differences]


async def quarantine_at(backend: ConversationService, key: Key) -> dict[str, Any] | None:
    document = json.loads(await backend.context(key.tenant, key.conversation))
    found: dict[str, Any] | None = document.get("parked")
    return found


async def test_undecodable_bytes_park_their_conversation_until_they_are_dropped(
    runtime: Runtime, poisoned: Settings, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, other = Key("acme", "bytes"), Key("acme", "bytes-beside")
    await applied(runtime, (await append(runtime, key, [message("before")]))[0])
    bad = await put(runtime, key, b"{not json, and a secret")
    later = await append(runtime, key, [message("later"), message("and later")], 1)
    await applied(runtime, (await append(runtime, other, [message("beside")]))[0])
    await applied(runtime, later[-1])
    assert caplog.text.count(f"{key} is parked at {bad}: the value is not an event") == 1
    assert "secret" not in caplog.text
    async with ConversationService(poisoned) as backend:
        found = await quarantine_at(backend, key)
        assert found is not None and found["position"] == str(bad) and found["waiting"] == 2
        assert (await backend.window("acme", "bytes")).meta.count == 1
        assert await quarantine_at(backend, other) is None
        (appended,) = await backend.append("acme", [("bytes", message("third"))])
        (told,) = await backend.wait_applied("acme", "bytes", [appended])
        assert told.status == "parked"
        assert await check(runtime) == []
        listed = await command(data, "dead-letters", "list")
        assert listed.code == 0
        assert any(
            line.startswith(f"{bad}  parked  {key}, 3 waiting: the value is not an event")
            for line in listed.lines
        )
        assert "secret" not in listed.out
        checked = await command(data, "doctor")
        (line,) = [line for line in checked.lines if "dead letters" in line]
        assert line == (
            "note  dead letters: 1 conversation parked, 0 records of no conversation: see"
            " `threadfold dead-letters list`"
        )
        shown = json.loads((await command(data, "dead-letters", "inspect", str(bad))).out)
        assert shown["kind"] == "poison" and shown["key"] == str(key) and shown["bytes"] == 23
        again = await command(data, "dead-letters", "retry", str(bad))
        assert again.code == 1 and f"{key}: still parked at {bad}" in again.out
        good = await command(data, "dead-letters", "drop", str(later[0]))
        assert (
            good.code == 2
            and f"position {later[0]} only waits, until {key} goes on from {bad}" in good.err
        )
        dropped = await command(
            data, "dead-letters", "drop", str(bad), "--reason", "a broken producer"
        )
        assert dropped.code == 0 and "it continues" in dropped.out, dropped.out + dropped.err
        assert await quarantine_at(backend, key) is None
        assert (await backend.window("acme", "bytes")).meta.count == 5
    assert str(key) not in (await command(data, "dead-letters", "list")).out
    assert await check(runtime) == []


async def test_what_waits_and_cannot_be_read_is_dropped_before_its_turn(
    runtime: Runtime, poisoned: Settings, data: Path
) -> None:
    key = Key("acme", "twice")
    bad, worse = [await put(runtime, key, value) for value in (b"{one", b"{two")]
    (last,) = await append(runtime, key, [message("the rest")])
    await applied(runtime, last)
    first = await command(data, "dead-letters", "drop", str(worse))
    assert first.code == 1 and f"{key}: still parked at {bad}" in first.out
    assert (await command(data, "dead-letters", "drop", str(bad))).code == 0
    async with ConversationService(poisoned) as backend:
        assert await quarantine_at(backend, key) is None
        assert (
            json.loads(await backend.context("acme", "twice"))["messages"][-1]["content"]
            == "the rest"
        )


async def test_a_parked_window_that_cannot_be_read_hides_no_other(
    runtime: Runtime, poisoned: Settings, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [Key("acme", f"hidden{n}") for n in range(2)]
    bad = [await put(runtime, key, b"{not json") for key in keys]
    for at in bad:
        await applied(runtime, at)
    partition, client = bad[0].partition, aredis.Redis.from_url(poisoned.redis)
    stored = f"{poisoned.topic_prefix}:{{1:{partition}}}:w:{keys[0]}"
    kept = await client.hgetall(stored)
    assert kept
    await client.hset(stored, HEAD, b"\xff")
    listed = await command(data, "dead-letters", "list")
    assert listed.code == 0, listed.err
    assert str(keys[1]) in listed.out
    assert f"{bad[0]}  parked" not in listed.out
    assert f"not listed: the stored window of {keys[0]} cannot be read" in caplog.text
    await client.hset(stored, mapping=kept)
    await client.aclose()
    for at in bad:
        await command(data, "dead-letters", "drop", str(at), "--reason", "garbage")


async def test_a_record_in_a_wrong_partition_is_nobodys_and_leaves_its_conversation_alone(
    runtime: Runtime, poisoned: Settings, data: Path
) -> None:
    """Java's default partitioner puts it there. Folded, it had a second window, which lists named,
    and in which what was said outlived an erasure.
    """
    key = Key("acme", "astray")
    name, home = str(key).encode(), partition_of(key, runtime.log.partitions)
    wrong = (home + 1) % runtime.log.partitions
    (first,) = await append(runtime, key, [message("at home")])
    (raw,) = (await runtime.log.read([first])).values()
    sent = await put_raw(
        runtime.settings, "events", (wrong, name, raw.value), (wrong, name, b"{not json")
    )
    await applied(runtime, first)
    await applied(runtime, Position(wrong, sent[-1].offset))
    async with ConversationService(poisoned) as backend:
        listed = (await conversations(backend, "acme"))["conversations"]
        assert [one["conversation"] for one in listed].count("astray") == 1
        assert await quarantine_at(backend, key) is None
        assert (await backend.window("acme", "astray")).meta.count == 1
        await Eraser(backend, AsyncMock()).conversation("acme", "astray")
    assert await check(runtime) == []
    for row in sent:
        at = Position(wrong, row.offset)
        (line,) = [
            line
            for line in (await command(data, "dead-letters", "list")).lines
            if line.startswith(f"{at} ")
        ]
        assert f"its key belongs to partition {home}" in line
        ran = await command(data, "dead-letters", "retry", str(at))
        assert ran.code == 2 and f"the record at {at} belongs to no conversation" in ran.err
        assert (await command(data, "dead-letters", "drop", str(at))).code == 0
        assert str(at) not in (await command(data, "dead-letters", "list")).out


async def trap(runtime: Runtime, key: Key) -> Position:
    """Fill a conversation until the worker's callable fails on it; returns where it is quarantined."""
    call = {
        "type": "message",
        "role": "assistant",
        "tool_calls": [{"id": "a", "name": "look", "arguments": "{}"}],
    }
    sent = await append(
        runtime, key, [call, {"type": "tool.result", "tool_call_id": "a", "content": "trap " * 60}]
    )
    sent = await append(
        runtime, key, [message("word " * 40) | {"role": "assistant"} for _ in range(20)], 2
    )
    await applied(runtime, sent[-1])
    _, (stored,) = await runtime.store.read(1, sent[0].partition, [key])
    assert stored is not None
    quarantine = stored.load(key, sent[0].partition, runtime.projector.rules).meta.quarantine
    assert quarantine is not None and quarantine.count > 0
    return Position(sent[0].partition, quarantine.offset)


async def test_a_failing_fold_is_quarantined_and_goes_on_with_the_code_mended(
    runtime: Runtime, poisoned: Settings, data: Path
) -> None:
    key = Key("acme", "trapped")
    at = await trap(runtime, key)
    assert await check(runtime) == []
    shown = json.loads((await command(data, "dead-letters", "inspect", str(at))).out)
    assert "Panic" in shown["parked"]["cause"] and "trap" not in shown["parked"]["cause"]
    assert shown["now"].startswith("Panic: cannot shorten 'trap")
    lacking = json.loads((await cli("dead-letters", "inspect", str(at), "--data", data)).out)
    assert "callable 'shorten' is not registered in this process" in lacking["now"]
    able = await command(data, "dead-letters", "inspect", str(at), release="mended")
    assert json.loads(able.out)["now"] == "this release can fold it: retry it"
    assert (await command(data, "dead-letters", "retry", str(key))).code == 1
    retried = await command(data, "dead-letters", "retry", "--all", release="mended")
    assert retried.code == 0 and f"{key}: continues" in retried.out, retried.out + retried.err
    async with ConversationService(poisoned) as backend:
        assert await quarantine_at(backend, key) is None
        assert (await backend.window("acme", "trapped")).meta.count == 22
        # The worker, fenced by the retry, loads what was written and goes on.
        done = await append(runtime, key, [message("on")], 100)
        await applied(runtime, done[0])
        await until(lambda: _count(backend, key, 23))
    # What the log says under the old code is another window: whoever repaired now would quarantine it
    # again.
    assert [found.partition(" at ")[0] for found in await check(runtime)] == [str(key)] * 2
    assert (
        (await command(data, "verify", "--deep", release="mended"))
        .lines[-1]
        .endswith("differing: 0")
    )
    bare = await cli("verify", "--data", data)
    assert bare.code == 1
    assert bare.lines[0].startswith("callable 'shorten' is not registered here: in ")
    checked = await cli("doctor", "--data", data)
    assert "wrong callables: policies name shorten, which these settings do not" in checked.out


async def _count(backend: ConversationService, key: Key, count: int) -> bool:
    return (await backend.window(key.tenant, key.conversation)).meta.count == count


async def test_records_that_are_nobodys_are_listed_once_and_taken_off_the_list(
    runtime: Runtime, data: Path
) -> None:
    key = Key("acme", "records")
    places = [await put(runtime, key, b"{}", b"no-slash"), await put(runtime, key, None)]
    done = await append(runtime, key, [message("hello")])
    await applied(runtime, done[0])

    async def listed() -> list[dict[str, Any]]:
        ran = await command(data, "dead-letters", "list", "--json")
        return [one for one in map(json.loads, ran.lines) if one["position"] in map(str, places)]

    found = await until(listed)
    assert [(one["kind"], one["key"]) for one in found] == [
        ("record", "no-slash"),
        ("record", str(key)),
    ]
    refused = await command(data, "dead-letters", "retry", str(places[0]))
    assert refused.code == 2 and "belongs to no conversation" in refused.said
    assert (await command(data, "dead-letters", "drop", str(places[0]))).code == 0
    assert [one["position"] for one in await listed()] == [str(places[1])]
    refused = await command(data, "dead-letters", "drop", str(done[0]))
    assert refused.code == 2 and "parks no conversation" in refused.said
    refused = await command(data, "dead-letters", "inspect", f"{places[0].partition}-999999")
    assert refused.code == 2 and "not in the log" in refused.said
    assert not [found for found in await check(runtime) if found.startswith("acme/records")]


# -- through the gateway
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def admin(runtime: Runtime, poisoned: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the scope admin; its gateway runs the code that fails."""
    await runtime.control.ensure_tenant("acme")
    key = await runtime.control.add_key("acme", ["admin"])
    app = create_gateway(poisoned)
    async with app.router.lifespan_context(app):
        http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://gateway/v1/dead-letters",
            headers={"Authorization": f"Bearer {key}"},
        )
        async with http:

            async def ready() -> bool:
                return (await http.get("http://gateway/readyz")).status_code == 200

            await until(ready)
            yield http


async def test_an_operator_lists_inspects_retries_and_drops_over_http(
    runtime: Runtime, admin: httpx.AsyncClient
) -> None:
    key = Key("acme", "over-http")
    bad = await put(runtime, key, b"{not json, and a secret")
    (last,) = await append(runtime, key, [message("the rest")])
    await applied(runtime, last)
    url = str(admin.base_url).rstrip("/")
    listed = (await admin.get(url)).json()
    (parked,) = [one for one in listed["parked"] if one["conversation"] == "over-http"]
    assert (parked["position"], parked["tenant"], parked["waiting"]) == (str(bad), "acme", 1)
    assert listed["all"] and listed["halted"] == [] and "secret" not in str(listed)
    assert not (await admin.get(url, params={"tenant": "rival"})).json()["parked"]
    shown = (await admin.get(f"/{bad}")).json()
    assert (shown["kind"], shown["bytes"], shown["key"]) == ("poison", 23, str(key))
    assert "secret" not in str(shown) and shown["parked"]["position"] == str(bad)
    again = (await admin.post(f"/{bad}/retry")).json()
    assert again["folded"] == 0 and again["parked"]["position"] == str(bad)
    refused = await admin.post(f"/{last}/drop")
    assert refused.status_code == 422 and "only waits" in refused.json()["detail"]
    dropped = (await admin.post(f"/{bad}/drop", json={"reason": "a broken producer"})).json()
    assert dropped["applied"] and dropped["parked"] is None and dropped["event"]
    nothing = (await admin.post(f"/{last}/retry")).json()
    assert (nothing["folded"], nothing["parked"]) == (0, None), "it is not parked any more"
    assert (await admin.post(f"/{last}/drop")).status_code == 422
    record = await put(runtime, key, b"{}", b"no-slash-either")
    assert (await admin.post(f"/{record}/retry")).status_code == 422
    off = (await admin.post(f"/{record}/drop")).json()
    assert off == {"event": None, "applied": True, "parked": None}
    assert (await admin.get(f"/{record.partition}-999999")).status_code == 422


async def test_a_record_of_an_erased_conversation_is_not_shown(
    runtime: Runtime, poisoned: Settings, data: Path
) -> None:
    """Its payload is in the log as long as that keeps it, and was never sealed."""
    key, of_user = Key("acme", "erased"), Key("acme", "erased-with-its-user")
    places = await append(runtime, key, [message("a secret")])
    places.append(await put(runtime, key, b"{not json, and a secret"))
    opened = {"type": "conversation.opened", "user": "u-secret"}
    places += await append(runtime, of_user, [opened, message("a secret of a user")])
    for at in places:
        await applied(runtime, at)
        assert "secret" in (await command(data, "dead-letters", "inspect", str(at))).out
    async with ConversationService(poisoned) as backend:
        eraser = Eraser(backend, AsyncMock())
        await eraser.conversation("acme", "erased")
        await eraser.user("acme", "u-secret")
        for at in places:
            ran = await command(data, "dead-letters", "inspect", str(at))
            assert (ran.code, ran.out) == (1, "")
            assert f"the record at {at} is not shown: conversation erased" in ran.said
            with pytest.raises(Erased, match="was erased"):
                await letters.inspected(backend, str(at))
            for args in (("list",), ("list", "--json"), ("retry", str(at)), ("drop", str(at))):
                ran = await command(data, "dead-letters", *args)
                assert "secret" not in ran.out + ran.err
