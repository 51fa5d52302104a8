"""The memory's MCP server, called by the official client over stdio and over HTTP, on real Kafka and
Redis. Skipped where the SDK is not installed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip(
    "mcp.server.mcpserver", reason="the package mcp (extra mcp) is not installed: no MCP server"
)
import httpx2
from mcp import Client, MCPError

from tests.support.commands import clean_env, cli, start
from tests.support.mcp_world import World
from tests.support.ports import closed_port
from threadfold_client import AsyncClient

TOOLS = ["mem_context", "mem_delete", "mem_get", "mem_save", "mem_search", "mem_timeline"]


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers; fails the test if that is an error."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    answer: dict[str, Any] = found.structured_content
    assert json.loads(found.content[0].text) == answer  # type: ignore[union-attr]
    return answer


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The line that a tool answers instead of a result."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.structured_content
    text: str = found.content[0].text  # type: ignore[union-attr]
    assert "\n" not in text and "Traceback" not in text
    return text


@pytest.fixture
def user() -> str:
    return f"u-{uuid4().hex[:8]}"


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_end_user_saves_finds_reads_and_deletes_by_the_official_client(
    world: World, user: str, transport: str
) -> None:
    async with world.client(transport, await world.token(user)) as client:
        assert sorted(one.name for one in (await client.list_tools()).tools) == TOOLS
        ids = []
        for n, kind in enumerate(["fact", "fact", "preference", "fact"]):
            saved = await called(client, "mem_save", text=f"The train {n} leaves.", type=kind)
            assert saved["status"] == "created"
            ids.append(saved["id"])
        found = (await called(client, "mem_search", query="trains", limit=3))["hits"]
        assert len(found) == 3 and all("train" in one["text"] for one in found)
        assert {one["trust"] for one in found} == {"model"}
        whole = await called(client, "mem_get", id=ids[0])
        assert (whole["text"], whole["user"]) == ("The train 0 leaves.", user)
        around = (await called(client, "mem_timeline", id=ids[1], before=1, after=1))["memories"]
        assert [one["id"] for one in around] == ids[:3]
        known = (await called(client, "mem_context"))["memories"]
        assert [one["id"] for one in known] == [ids[2], ids[3], ids[1], ids[0]]
        assert (await called(client, "mem_delete", id=ids[0]))["deleted"] == ids[0]
        assert "is not known" in await refused(client, "mem_get", id=ids[0])
        again = await called(client, "mem_save", text="The train 0 leaves.")
        assert again["id"] == ids[0]
        assert (await called(client, "mem_get", id=ids[0]))["text"] == "The train 0 leaves."


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_server_that_waits_for_its_clients_next_line_ends_by_a_signal(
    world: World, sent: signal.Signals, code: int
) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "a test", "version": "1"}
    line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    env = {"THREADFOLD_KEY": world.keys["acme"]}
    server = await start("mcp", "--url", world.url, env=env, stdin=asyncio.subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(json.dumps(line).encode() + b"\n")
        answer = await asyncio.wait_for(server.stdout.readline(), 60)
        assert json.loads(answer)["result"]["serverInfo"]["name"]
        server.send_signal(sent)
        assert await asyncio.wait_for(server.wait(), 20) == code
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def test_answers_are_short_and_the_rest_is_had_by_id(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as client:
        long = "word " * 900
        saved = await called(client, "mem_save", text=long)
        (hit,) = (await called(client, "mem_search", query="word"))["hits"]
        assert len(hit["text"]) == 2000 and hit["text"].endswith("…")
        assert (await called(client, "mem_get", id=saved["id"]))["text"] == long.strip()
        for n in range(25):
            await called(client, "mem_save", text=f"Fact {n} in short.")
        assert len((await called(client, "mem_search", query="short", limit=20))["hits"]) == 20
        assert len((await called(client, "mem_context"))["memories"]) == 20
        assert "limit" in await refused(client, "mem_search", query="short", limit=21)


async def test_a_search_is_narrowed_by_type_time_and_conversation(world: World, user: str) -> None:
    talk = f"c-{user}"
    opened = {"type": "conversation.opened", "user": user}
    async with AsyncClient(world.url, world.keys["acme"]) as plain:
        await plain.append(talk, [opened], wait="applied")
    async with world.over_http(await world.token(user)) as client:

        async def found(**more: Any) -> list[str]:
            hits = (await called(client, "mem_search", query="boats", **more))["hits"]
            return sorted(hit["text"] for hit in hits)

        boat = {"text": "Owns a boat.", "topic": "boat"}
        saved = await called(client, "mem_save", **boat)
        first = await called(client, "mem_get", id=saved["id"])
        await called(client, "mem_save", **{**boat, "text": "Sold the boat."})
        await called(client, "mem_save", text="Likes boats.", type="preference", conversation=talk)
        assert await found() == ["Likes boats.", "Sold the boat."]
        assert await found(types=["preference"]) == ["Likes boats."]
        assert await found(conversation=talk) == ["Likes boats."]
        assert await found(as_of=first["created"].replace("Z", "999Z")) == ["Owns a boat."]
        assert "as_of" in await refused(client, "mem_search", query="boats", as_of="noon")


async def test_a_timeline_has_five_neighbours_on_either_side(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as client:
        ids = [(await called(client, "mem_save", text=f"Step {n}."))["id"] for n in range(13)]
        around = (await called(client, "mem_timeline", id=ids[6]))["memories"]
        assert [one["id"] for one in around] == ids[1:12]


async def test_nobody_reaches_what_is_anothers(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as mine:
        saved = await called(mine, "mem_save", text="Hides the key under the mat.")
    for key in (await world.token(f"{user}-2"), world.keys["rival"]):
        async with world.over_http(key) as other:
            assert (await called(other, "mem_search", query="key mat"))["hits"] == []
            assert (await called(other, "mem_context"))["memories"] == []
            for tool in ("mem_get", "mem_timeline", "mem_delete"):
                said = await refused(other, tool, id=saved["id"])
                assert said == f"memory {saved['id']} is not known"
    async with world.within(world.keys["acme"], f"{user}-2") as narrowed:
        assert (await called(narrowed, "mem_search", query="key mat"))["hits"] == []
        for tool in ("mem_get", "mem_timeline", "mem_delete"):
            assert "is not known" in await refused(narrowed, tool, id=saved["id"])
    async with world.within(world.keys["acme"], user) as narrowed:
        assert len((await called(narrowed, "mem_search", query="key mat"))["hits"]) == 1
        assert (await called(narrowed, "mem_get", id=saved["id"]))["user"] == user


async def test_what_is_no_argument_and_no_id_is_refused_by_name(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as client:
        said = await refused(client, "mem_search", query="x", conversaton="c1")
        assert "'conversaton' is not an argument" in said and "conversation," in said
        for no_id in ("stats", "..", "0" * 63, "0" * 64 + "/timeline"):
            for tool in ("mem_get", "mem_timeline", "mem_delete"):
                assert f"{tool}: id: String should match" in await refused(client, tool, id=no_id)
        assert await refused(client, "mem_forget") == (
            "tool mem_forget is not known: there are mem_context, mem_delete, mem_get, mem_save,"
            " mem_search, mem_timeline"
        )
        assert len(await refused(client, "x" * 50_000)) < 250  # its name is a header, too


async def test_a_prompt_is_refused_by_name(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as client:
        with pytest.raises(MCPError, match="prompt hello is not known") as refused:
            await client.get_prompt("hello")
        assert refused.value.error.code == -32602


async def test_heads_are_limited_as_at_the_gateway(world: World) -> None:
    async with httpx2.AsyncClient() as http:
        many = {f"X-{n}": "x" for n in range(300)}  # few bytes: the answer comes after all of them
        answer = await http.post(world.http, headers=many, json={})
    assert answer.status_code == 431


async def test_what_a_user_taught_by_mcp_is_the_same_memory_as_over_http(
    world: World, user: str
) -> None:
    async with world.over_http(await world.token(user)) as client:
        saved = await called(client, "mem_save", text="Owns a boat.", topic="boat")
    async with AsyncClient(world.url, world.keys["acme"]) as plain:
        found = await plain.memory(saved["id"])
    assert (found["text"], found["user"], found["topic"]) == ("Owns a boat.", user, "boat")


async def test_a_model_takes_no_trust_from_what_a_user_said_and_gives_it_none(
    world: World, user: str
) -> None:
    async with AsyncClient(world.url, world.keys["acme"]) as plain:
        (said,) = await plain.save_memories({"text": "Owns a boat.", "user": user})
        async with world.over_http(await world.token(user)) as client:
            again = await called(client, "mem_save", text="owns a boat")
            other = await called(client, "mem_save", text="Owns two boats.")
        assert again == {"id": said["id"], "status": "confirmed"}
        trusts = [(await plain.memory(one["id"]))["trust"] for one in (said, other)]
    assert trusts == ["user", "model"]


async def test_a_search_names_what_no_memory_says(world: World, user: str) -> None:
    async with world.over_http(await world.token(user)) as client:
        asked = {"query": "When does the boat leave?"}
        assert (await called(client, "mem_search", **asked))["missing"] == ["time"]
        await called(client, "mem_save", text="The boat leaves on 2026-05-03.")
        found = await called(client, "mem_search", **asked)
    assert (len(found["hits"]), found["missing"]) == (1, [])


async def test_a_wrong_key_and_a_gateway_that_is_away_are_one_clear_line(world: World) -> None:
    async with world.within("tf_wrong") as client:
        said = await refused(client, "mem_search", query="x")
        assert said.startswith("the gateway refuses the credential") and "THREADFOLD_KEY" in said
    async with world.within("k", url=f"http://127.0.0.1:{closed_port()}") as client:
        said = await refused(client, "mem_save", text="x")
        assert "does not answer" in said and "check that it runs there" in said
    for key, part in (("tf_wrong", "the header Authorization"), (None, "send the header")):
        with pytest.RaisesGroup(MCPError, flatten_subgroups=True) as over_http:
            async with world.over_http(key):
                pass
        assert part in str(over_http.value.exceptions), key


async def test_the_command_says_what_it_needs() -> None:
    done = await cli("mcp")
    assert done.code == 2 and "set THREADFOLD_KEY" in done.said
    program = (
        "import sys; sys.modules['mcp'] = None; from threadfold.cli.main import main;"
        " raise SystemExit(main(['mcp']))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=clean_env(), stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode().strip().endswith("pip install 'threadfold[mcp]'") and err.count(b"\n") == 1


async def test_a_port_that_is_taken_is_one_line_about_this_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await cli("mcp", "--http", "--port", str(port), "--url", "http://127.0.0.1:9")
    assert done.code == 2
    said = done.said.strip()
    assert said.startswith(f"threadfold: the MCP server cannot listen on 127.0.0.1:{port} (")
    assert said.endswith("give another address with --host and --port")
