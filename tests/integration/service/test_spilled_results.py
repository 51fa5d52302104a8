"""A result too long for one record is spilled and read back by pages, through the gateway on real
Kafka and Redis.
"""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.commands import ok
from tests.support.gateway import CALL, Client, is_problem, result, say


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
