"""Spilled results, the ledger of model calls and the formats, through the gateway on real Kafka and
Redis.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.commands import cli, ok
from tests.support.gateway import Client, is_problem, say
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.gateway import create_gateway
from threadfold.service.conversations import ConversationService
from threadfold.service.model_call import write_id

TIGHT = {"working_budget": 600, "keep_recent_tokens": 200, "min_messages": 4, "summary_max_tokens": 150, "model_window": 8_000,
         "reserve_tokens": 500}  # fmt: skip
CALL = {
    "type": "message",
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "name": "fetch", "arguments": "{}"}],
}


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    control = await Control(settings).start()
    await control.write(
        {
            "generation/1": Generation(1, settings.partitions, {"max_result_bytes": 1_000_000}),
            "generation/live": 1,
        }
    )
    keys = {}
    for tenant, policy in (("acme", None), ("rival", None), ("silent", {"renders": False})):
        await control.ensure_tenant(tenant, policy)
        keys[tenant] = await control.add_key(tenant)
    await control.stop()
    app = create_gateway(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        running_worker(settings),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
    ):

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready)
        yield Client(http, keys, app.state.connection.backend)


@pytest.fixture(scope="module")
def data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stack")
    write_config(folder / CONFIG_FILE, settings)
    return folder


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool.result", "tool_call_id": "c", "content": content, **fields}


def text_of(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices('abcdefgh ij\nдß🌧"', k=length))


async def read_by_pages(call: Client, path: str, limit: int) -> tuple[str, int]:
    found, offset = "", 0
    while True:
        page = (await call("GET", f"{path}?offset={offset}&limit={limit}")).json()
        assert page["page"]["offset"] == offset
        found += page["content"]
        offset += limit
        if offset >= page["page"]["characters"]:
            return found, page["page"]["characters"]


# -- spill
# ------------------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_result_of_250_000_characters_is_spilled_and_read_back_page_by_page(
    call: Client,
) -> None:
    text, path = text_of(1, 250_000), "/v1/conversations/big"
    flats = [say("fetch it"), CALL, result(text, id="huge"), say("thanks")]
    events = (await call("POST", f"{path}/events?wait=applied", flats)).json()["events"]
    assert [event["status"] for event in events] == ["applied"] * 4
    offsets = [int(event["position"].partition("-")[2]) for event in events]
    assert offsets == list(range(offsets[0], offsets[0] + 4)), (
        "a list keeps its order and stays together"
    )
    at = f"{path}/events/{events[2]['position']}"
    assert await read_by_pages(call, at, 60_000) == (text, 250_000)
    whole = (await call("GET", at)).json()
    assert whole["content"] == text
    assert whole["spill"]["sha256"] == sha256(text.encode()).hexdigest()
    assert len(whole["spill"]["chunks"]) == 3

    context = (await call("GET", f"{path}/context")).json()
    shown = context["messages"][2]["content"]
    assert len(shown) < 3_200
    assert "247000 of 250000 characters left out" in shown
    assert context["tokens"] < 5_000
    history = (await call("GET", f"{path}/history?limit=3")).json()
    assert [event["type"] for event in history["events"]] == ["message", "tool.result", "message"]
    rest = (await call("GET", f"{path}/history?limit=3&before={history['next_before']}")).json()
    assert [event["content"] for event in rest["events"]] == ["fetch it"]
    assert rest["next_before"] is None


async def test_a_repeat_is_a_duplicate_and_its_copy_reads_as_well(call: Client) -> None:
    text, path = text_of(2, 150_000), "/v1/conversations/twice"
    first = (
        await call("POST", f"{path}/events?wait=applied", [CALL, result(text, id="r")])
    ).json()["events"][1]
    again = (await call("POST", f"{path}/events", result(text, id="r"))).json()["events"][0]
    assert again["position"] != first["position"]
    for position in (first["position"], again["position"]):
        assert (await call("GET", f"{path}/events/{position}")).json()["content"] == text
    context = (await call("GET", f"{path}/context?after={again['position']}")).json()
    assert context["count"] == 4, "a message, two pieces and a result"


async def test_beyond_the_bytes_of_a_result_nothing_of_the_list_is_appended(call: Client) -> None:
    before = await call.backend.log.end_offsets()
    flats = [say("a"), result(text_of(3, 150_000)), result("ä" * 500_001)]
    is_problem(
        await call("POST", "/v1/conversations/toobig/events", flats),
        413,
        "event 3",
        "1000002 bytes",
        "1000000",
    )
    is_problem(
        await call(
            "POST",
            "/v1/conversations/toobig/events",
            [result(text_of(3, 150_000)), say("a", "boss")],
        ),
        422,
        "event 2",
    )
    assert await call.backend.log.end_offsets() == before
    assert (
        await call("POST", "/v1/conversations/toobig/events", result("ä" * 500_000))
    ).status_code == 202


async def test_pages_of_messages_and_what_has_none(call: Client) -> None:
    path = "/v1/conversations/paged"
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    flats = [
        say("hello world"),
        {"type": "message", "role": "user", "content": parts},
        {"type": "turn.started", "turn_id": "t"},
    ]
    one, two, three = [
        event["position"]
        for event in (await call("POST", f"{path}/events", flats)).json()["events"]
    ]
    page = (await call("GET", f"{path}/events/{one}?offset=6&limit=3")).json()
    assert (page["content"], page["page"]) == ("wor", {"offset": 6, "limit": 3, "characters": 11})
    assert (await call("GET", f"{path}/events/{two}?offset=2")).json()["content"] == "e two"
    assert (await call("GET", f"{path}/events/{two}")).json()["content"] == parts
    is_problem(
        await call("GET", f"{path}/events/{three}?offset=0"), 422, "turn.started", "no pages"
    )
    is_problem(await call("GET", f"{path}/events/{one}?offset=-1"), 422, "offset")
    is_problem(await call("GET", f"{path}/events/{one}?limit=1000001"), 422, "limit")


async def test_a_spilled_result_is_its_conversations_alone_and_a_lost_piece_is_reported(
    call: Client,
) -> None:
    path, text = "/v1/conversations/owner", text_of(4, 120_000)
    position = (await call("POST", f"{path}/events", [CALL, result(text)])).json()["position"]
    chunk = (await call("GET", f"{path}/events/{position}")).json()["spill"]["chunks"][0]
    for at in (position, chunk):
        is_problem(await call("GET", f"{path}/events/{at}", tenant="rival"), 422, at)
        assert (await call("GET", f"/v1/conversations/other/events/{at}")).status_code == 422
    is_problem(
        await call("POST", f"{path}/events", result("x", spill={"chars": 1})),
        422,
        "event 1",
        "spill",
    )
    # What another producer writes into Kafka may name anything: another conversation's pieces are
    # not given out.
    from projections.events.validation import Record
    from projections.names import Key, partition_of

    own = partition_of(Key("acme", "owner"), call.backend.log.partitions)
    name = next(
        f"thief{i}"
        for i in range(1000)
        if partition_of(Key("acme", f"thief{i}"), call.backend.log.partitions) == own
    )
    stolen = orjson.loads(
        (await call.backend.log.read([_position(position)]))[_position(position)].value or b""
    )
    stolen["source"] = f"/tenants/acme/conversations/{name}"
    (thief,) = await call.backend.log.append(
        [Record(Key("acme", name), stolen["id"], stolen["type"], orjson.dumps(stolen))]
    )
    for query in ("", "?offset=0"):
        is_problem(
            await call("GET", f"/v1/conversations/{name}/events/{thief}{query}"),
            500,
            "piece 1 of 2",
        )


def _position(text: str) -> Any:
    from projections.names import parse_position

    return parse_position(text)


async def test_the_command_spills_as_well(call: Client, data: Path, tmp_path: Path) -> None:
    text, file = text_of(5, 130_000), tmp_path / "events.jsonl"
    file.write_text(
        "\n".join(json.dumps(flat) for flat in (say("go"), CALL, result(text), say("done")))
    )
    positions = (await ok("append", "acme", "shell", file, "--data", data)).out.split()
    assert len(positions) == 4
    assert (await call("GET", f"/v1/conversations/shell/events/{positions[2]}")).json()[
        "content"
    ] == text
    await call("GET", f"/v1/conversations/shell/context?after={positions[-1]}")
    listed = json.loads((await ok("history", "acme", "shell", "--data", data)).out)["events"]
    assert [event["position"] for event in listed] == positions[::-1]


# -- ledger
# ------------------------------------------------------------------------------------------


def called(context: dict[str, Any], fmt: str, **more: Any) -> dict[str, Any]:
    """What a caller records of a context it sent."""
    kept = {name: context[name] for name in ("render_digest", "position", "tokens")}
    summary = context["summary"]["summary_id"] if context["summary"] else None
    return {
        **kept,
        "summary_id": summary,
        "model": "m1",
        "format": fmt,
        "reported_usage": {"prompt_tokens": 1},
        "latency_ms": 2.5,
        **more,
    }


@pytest.mark.long
async def test_recorded_calls_agree_after_more_messages_compactions_repeats_and_rollbacks(
    call: Client,
) -> None:
    path = "/v1/conversations/ledger"
    await call("POST", f"{path}/events", {"type": "conversation.opened", "policy": TIGHT})
    recorded: list[tuple[str, str, dict[str, Any]]] = []
    first = ""
    for turn in range(14):
        flats = [
            say(
                f"turn {turn} part {i}: the parcel 4711 of Alice was late in Oslo, because of snow."
            )
            for i in range(4)
        ]
        flats += [
            CALL,
            result(f"row {turn} " * 300 if turn % 5 == 0 else "ok"),
            say("It is late.", "assistant"),
        ]
        if turn == 6:
            flats.append({"id": "again", **say("once")})
            flats.append({"id": "again", **say("twice")})
        position = (await call("POST", f"{path}/events", flats)).json()["position"]
        first = position if turn == 0 else first
        for fmt in ("openai", "anthropic", "events"):
            limit = 700 if turn % 3 == 0 and fmt == "openai" else None
            query = f"format={fmt}&after={position}" + (f"&max_tokens={limit}" if limit else "")
            context = (await call("GET", f"{path}/context?{query}")).json()
            answer = await call(
                "POST",
                f"{path}/renders",
                called(context, fmt, **({"max_tokens": limit} if limit else {})),
            )
            assert answer.status_code == 202, answer.text
            recorded.append((answer.json()["id"], fmt, context))

    async def summarised() -> bool:
        window = await call.backend.window("acme", "ledger")
        return (
            window.meta.due is None
            and window.meta.summary is not None
            and window.meta.summary.previous is not None
        )

    await until(summarised)
    context = (await call("GET", f"{path}/context")).json()
    count, in_force = context["count"], context["summary"]["summary_id"]
    for render_id, fmt, context in recorded:
        await agrees(call, render_id, fmt, context)
    assert (await call("GET", f"{path}/context")).json()["count"] == count, (
        "nothing of the ledger enters the window"
    )
    assert len({context["render_digest"] for _, _, context in recorded}) > 30
    rolled = (await call("POST", f"{path}/rollback?wait=applied", {"to": first})).json()["events"][
        0
    ]
    assert rolled["status"] == "applied"
    summary = (await call("GET", f"{path}/context")).json()["summary"]
    assert summary is None or summary["summary_id"] != in_force, (
        "the rollback reached into summarised history"
    )
    for render_id, fmt, context in recorded[::4]:
        await agrees(call, render_id, fmt, context)


async def agrees(call: Client, render_id: str, fmt: str, context: dict[str, Any]) -> None:
    """A recorded call renders to the same messages again."""
    shown = (await call("GET", f"/v1/renders/{render_id}")).json()
    assert shown["agrees"], shown["why"]
    assert shown["messages"] == context["messages"]
    assert shown.get("system") == context.get("system")
    assert shown["render_digest"] == context["render_digest"]
    assert shown["record"]["format"] == fmt
    assert shown["why"] == []


async def test_what_does_not_agree_says_why(call: Client) -> None:
    path = "/v1/conversations/why"
    position = (await call("POST", f"{path}/events?wait=applied", [say("a"), say("b")])).json()[
        "position"
    ]
    context = (await call("GET", f"{path}/context")).json()

    async def why(**change: Any) -> str:
        render_id = (
            await call("POST", f"{path}/renders", {**called(context, "openai"), **change})
        ).json()["id"]
        shown = (await call("GET", f"/v1/renders/{render_id}")).json()
        assert shown["agrees"] is False
        return " ".join(shown["why"])

    wrong = "0" * 64
    assert "messages differ" in await why(render_digest=wrong)
    assert "policy was old" in await why(render_digest=wrong, policy="old")
    assert "summary was s1" in await why(render_digest=wrong, summary_id="s1")
    assert "tokens were 1 then" in await why(render_digest=wrong, tokens=1)
    assert "cannot be rendered" in await why(max_tokens=1)
    partition, _, offset = position.partition("-")
    assert "the log ends before" in await why(position=f"{partition}-{int(offset) + 100_000}")
    foreign = f"{(int(partition) + 1) % call.backend.log.partitions}-{offset}"
    is_problem(
        await call("POST", f"{path}/renders", {**called(context, "openai"), "position": foreign}),
        422,
        "position",
        foreign,
    )
    is_problem(await call("POST", f"{path}/renders", b"{"), 400, "line 1")
    is_problem(
        await call("POST", f"{path}/renders", {**called(context, "openai"), "cost": 1}), 422, "cost"
    )


async def test_a_record_is_its_tenants_alone_and_unknown_ids_are_404(call: Client) -> None:
    path = "/v1/conversations/private"
    await call("POST", f"{path}/events?wait=applied", say("classified"))
    context = (await call("GET", f"{path}/context")).json()
    render_id = (await call("POST", f"{path}/renders", called(context, "openai"))).json()["id"]
    assert (await call("GET", f"/v1/renders/{render_id}")).json()["agrees"] is True
    is_problem(await call("GET", f"/v1/renders/{render_id}", tenant="rival"), 404, "not known")
    from projections.names import Key
    from threadfold.service.model_call import read_id

    place = read_id(render_id)
    assert place is not None
    forged = [write_id(Key("rival", "private"), place[0]), write_id(Key("acme", "else"), place[0])]
    beyond = write_id(Key("acme", "private"), place[0]._replace(offset=10**9))
    for unknown in (*forged, beyond, "nonsense", "A" * 28):
        for tenant in ("rival", "acme"):
            is_problem(await call("GET", f"/v1/renders/{unknown}", tenant=tenant), 404, "not known")


async def test_a_tenant_may_switch_the_ledger_off(call: Client) -> None:
    path = "/v1/conversations/quiet"
    await call("POST", f"{path}/events?wait=applied", say("x"), tenant="silent")
    context = (await call("GET", f"{path}/context", tenant="silent")).json()
    answer = await call("POST", f"{path}/renders", called(context, "openai"), tenant="silent")
    assert (answer.status_code, answer.json()) == (202, {"id": None, "recorded": False})


async def test_the_command_shows_a_call_and_lists_the_last_ones(call: Client, data: Path) -> None:
    path = "/v1/conversations/told"
    ids = []
    for i in range(4):
        await call("POST", f"{path}/events?wait=applied", say(f"line {i}"))
        context = (await call("GET", f"{path}/context")).json()
        record = called(context, "openai") | ({"render_digest": "0" * 64} if i == 3 else {})
        ids.append((await call("POST", f"{path}/renders", record)).json()["id"])
    listed = [json.loads(line) for line in (await ok("renders", "show", "--tenant", "acme", "--conversation", "told", "--last", "3",
                                                     "--data", data)).out.splitlines()]  # fmt: skip
    assert [line["id"] for line in listed] == ids[:0:-1]
    shown = json.loads((await ok("renders", "show", ids[1], "--data", data)).out)
    assert shown["agrees"] is True
    assert [message["content"] for message in shown["messages"]] == ["line 0", "line 1"]
    differs = await cli("renders", "show", ids[3], "--tenant", "acme", "--data", data)
    assert differs.code == 1
    assert json.loads(differs.out)["why"]
    other = await cli("renders", "show", ids[0], "--tenant", "rival", "--data", data)
    assert (other.code, other.out) == (1, "")
    assert "not known" in other.err
    assert (await cli("renders", "show", "--data", data)).code == 2


# -- formats
# ------------------------------------------------------------------------------------------


async def test_anthropic_messages_come_back_as_they_were(call: Client) -> None:
    path = "/v1/conversations/claude"
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    answer = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "rain"}],
    }
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "id": "m1"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
        {
            "role": "user",
            "content": [answer, {"type": "text", "text": "And tomorrow?"}],
            "id": "m2",
        },
    ]
    landed = (
        await call("POST", f"{path}/messages?format=anthropic&wait=applied", messages)
    ).json()["events"]
    assert [event["status"] for event in landed] == ["applied"] * 5
    assert [event["id"] for event in landed if event["id"].startswith("m")] == ["m1", "m2", "m2-2"]
    context = (await call("GET", f"{path}/context?format=anthropic")).json()
    assert context["system"] == "You help."
    assert context["messages"] == [
        {name: message[name] for name in ("role", "content")} for message in messages[1:]
    ]
    assert context["render_digest"] == sha256(orjson.dumps(context["messages"])).hexdigest()
    events = (await call("GET", f"{path}/context?format=events")).json()
    assert [event["type"] for event in events["messages"]] == [
        "message",
        "message",
        "message",
        "tool.result",
        "message",
    ]
    assert [event["position"] for event in events["messages"]] == [
        event["position"] for event in landed
    ]
    assert events["render_digest"] == sha256(orjson.dumps(events["messages"])).hexdigest()
    assert (await call("GET", f"{path}/context?format=anthropic&max_tokens=1")).status_code == 422


async def test_anthropic_errors_name_message_and_field(call: Client) -> None:
    path = "/v1/conversations/claude-errors/messages?format=anthropic"
    fine: dict[str, Any] = {"role": "user", "content": "x"}
    is_problem(await call("POST", path, b"{"), 400, "line 1")
    is_problem(
        await call("POST", path, [fine, {"role": "user", "content": [{"type": "video"}]}]),
        422,
        "message 2",
        "content[0].type",
    )
    two = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "x"}],
    }
    bad = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}],
    }
    is_problem(await call("POST", path, [two, bad]), 422, "message 2", "tool_calls[0].id")
    many = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}] * 501}
    is_problem(await call("POST", path, many), 422, "501 events", "500")
    assert isinstance(call.backend, ConversationService)
