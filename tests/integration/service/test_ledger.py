"""The ledger of model calls renders each call again, through the gateway on real Kafka and Redis."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import cli, ok
from tests.support.gateway import CALL, Client, is_problem, result, say
from tests.support.worker import until
from threadfold.service import ledger
from threadfold.service.model_call import write_id

TIGHT = {"working_budget": 600, "keep_recent_tokens": 200, "min_messages": 4, "summary_max_tokens": 150, "model_window": 8_000,
         "reserve_tokens": 500}  # fmt: skip


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


async def test_a_list_reads_no_more_than_it_shows_and_large_records_beside_others_requests(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (await call("POST", "/v1/conversations/long/events", say("hi"))).json()
    context = (await call("GET", f"/v1/conversations/long/context?after={said['position']}")).json()
    usage = {f"k{i}": i for i in range(2_500)}
    recorded = [
        (
            await call(
                "POST",
                "/v1/conversations/long/renders",
                called(context, "openai", reported_usage=usage),
            )
        ).json()["id"]
        for _ in range(15)
    ]
    decoded: list[threading.Thread] = []
    original = ledger.stored_call

    def stored_call(*args: Any) -> Any:
        decoded.append(threading.current_thread())
        return original(*args)

    monkeypatch.setattr(ledger, "stored_call", stored_call)
    monkeypatch.setattr(ledger, "FIRST_PART", 4)

    async def shown(limit: int) -> list[str]:
        decoded.clear()
        answer = await call("GET", f"/v1/conversations/long/renders?limit={limit}")
        found = answer.json()["renders"]
        assert all(one["record"]["reported_usage"] == usage for one in found)
        return [one["id"] for one in found]

    assert await shown(1) == recorded[-1:] and len(decoded) == 1
    assert await shown(9) == recorded[:-10:-1] and len(decoded) == 9
    monkeypatch.setattr(ledger, "FIRST_PART", 15)
    assert await shown(12) == recorded[:-13:-1] and len(decoded) == 12
    assert threading.main_thread() not in decoded


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
