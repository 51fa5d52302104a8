"""Assistant text in progress on real Kafka and Redis, over two gateways that share them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from projections.errors import Erased, KafkaUnavailable
from projections.names import Key, make_key, partition_of
from tests.support.stream_pair import Pair, history, piece, post, say
from tests.support.streaming import Subscriber, serving, subscribed
from tests.support.worker import until
from threadfold.streaming import partials
from threadfold.streaming.partial_end import Ending, kept_id
from threadfold.streaming.partial_store import Text
from threadfold.streaming.sweeper import Sweeper
from threadfold.streaming.text_endings import TextEndings


def heard(subscriber: Subscriber) -> str:
    """The text as the subscriber would show it now: a delta at an offset replaces what was
    there.
    """
    text = ""
    for data in subscriber.of("partial"):
        if "delta" in data:
            assert data["offset"] <= len(text)
            text = text[: data["offset"]] + data["delta"]
    return text


async def test_who_joins_mid_message_gets_what_was_said_so_far_and_then_the_rest_on_both_gateways(
    pair: Pair,
) -> None:
    path = "/v1/conversations/mid/stream"
    await pair.append("mid", say("question"))
    async with subscribed(pair.a, path, pair.keys["acme"]) as early:
        for i, delta in enumerate(("Hel", "lo ", "wörld 🙂")):
            answer = await piece(pair, "mid", "t1", delta, gateway=pair.b if i == 1 else pair.a)
            assert answer.status_code == 202, answer.text
        assert answer.json() == {"turn_id": "t1", "offset": 13}
        async with (
            subscribed(pair.a, path, pair.keys["acme"]) as late,
            subscribed(pair.b, path, pair.keys["acme"]) as other,
        ):
            await piece(pair, "mid", "t1", "!", gateway=pair.b)
            (position,) = await pair.append(
                "mid", say("Hello wörld 🙂!", "assistant"), gateway=pair.b
            )
            for subscriber in (early, late, other):
                await subscriber.until(
                    lambda s=subscriber: s.of("partial") and "ended" in s.of("partial")[-1]
                )
                assert heard(subscriber) == "Hello wörld 🙂!"
                assert subscriber.of("partial")[-1] == {
                    "turn_id": "t1",
                    "offset": 14,
                    "ended": "complete",
                }
                kinds = [
                    (event.kind, event.id)
                    for event in subscriber.got
                    if event.kind in ("event", "partial")
                ]
                assert kinds[-2:] == [("event", position), ("partial", None)]
            for subscriber in (late, other):
                assert subscriber.of("partial")[0] == {
                    "turn_id": "t1",
                    "offset": 0,
                    "delta": "Hello wörld 🙂",
                }
    assert await pair.a.app.state.live.store.read(make_key("acme", "mid")) is None


async def test_a_second_message_of_the_same_turn_begins_at_0_even_at_the_other_gateway(
    pair: Pair,
) -> None:
    async with subscribed(pair.b, "/v1/conversations/second/stream", pair.keys["acme"]) as one:
        for n in range(4):
            first, second = (pair.a, pair.b) if n % 2 else (pair.b, pair.a)
            assert (await piece(pair, "second", "t", f"{n}ab", gateway=first, offset=0)).json()[
                "offset"
            ] == 3
            assert (await piece(pair, "second", "t", "cd", gateway=first, offset=3)).json()[
                "offset"
            ] == 5
            await pair.append("second", say(f"{n}abcd", "assistant"), gateway=second)
        await one.until(lambda: len([d for d in one.of("partial") if "ended" in d]) == 4)
        shown = [d.get("delta", d.get("ended")) for d in one.of("partial")]
        assert shown == [part for n in range(4) for part in (f"{n}ab", "cd", "complete")]


async def test_offsets_make_repeats_safe_and_a_gap_or_other_text_is_refused(pair: Pair) -> None:
    assert (await piece(pair, "offsets", "t", "abc", offset=0)).json()["offset"] == 3
    assert (await piece(pair, "offsets", "t", "abc", offset=0)).json()["offset"] == 3
    assert (await piece(pair, "offsets", "t", "bcdef", offset=1, gateway=pair.b)).json()[
        "offset"
    ] == 6
    gap = await piece(pair, "offsets", "t", "x", offset=9)
    assert gap.status_code == 409
    assert "6 characters are stored" in gap.json()["detail"]
    other = await piece(pair, "offsets", "t", "xyz", offset=2)
    assert other.status_code == 409
    assert (await pair.a.app.state.live.store.read(make_key("acme", "offsets"))).text == "abcdef"


async def test_a_later_turn_keeps_the_earlier_ones_text_as_interrupted_and_takes_its_place(
    pair: Pair,
) -> None:
    async with subscribed(pair.a, "/v1/conversations/turns/stream", pair.keys["acme"]) as one:
        await piece(pair, "turns", "one", "half a sen")
        assert (await piece(pair, "turns", "two", "Anew", gateway=pair.b)).status_code == 202
        assert (await piece(pair, "turns", "one", "tence")).status_code == 409
        await one.until(lambda: len(one.of("partial")) >= 3 and len(one.events()) >= 1)
        assert one.events()[0].data["content"] == "half a sen"
        assert one.events()[0].data["status"] == "interrupted"
        assert [d.get("ended", d.get("delta")) for d in one.of("partial")] == [
            "half a sen",
            "interrupted",
            "Anew",
        ]


async def test_a_writer_that_vanishes_leaves_one_interrupted_message(pair: Pair) -> None:
    async with subscribed(pair.b, "/v1/conversations/vanish/stream", pair.keys["acme"]) as one:
        await piece(pair, "vanish", "t", "I was about to")
        await one.until(lambda: one.of("partial") and "ended" in one.of("partial")[-1], 10)
        assert one.of("partial")[-1] == {"turn_id": "t", "offset": 14, "ended": "interrupted"}
        (event,) = one.events()
        assert (event.data["role"], event.data["status"], event.data["content"]) == (
            "assistant",
            "interrupted",
            "I was about to",
        )

        async def folded() -> bool:
            return len(await history(pair, "vanish")) == 1

        await until(folded)


async def test_a_message_at_the_other_gateway_ends_the_text_and_nothing_interrupted_comes(
    pair: Pair,
) -> None:
    await piece(pair, "done", "t", "all of")
    await pair.append("done", say("all of it", "assistant"), gateway=pair.b)
    held = pair.a.app.state.live.store

    async def gone() -> bool:
        return await held.read(make_key("acme", "done")) is None

    await until(gone)
    await pair.append("done", say("thanks"), wait=True)
    assert [event["content"] for event in await history(pair, "done")] == ["thanks", "all of it"]


async def test_a_gateway_that_dies_leaves_its_text_to_the_other_and_two_that_end_it_make_one_message(
    pair: Pair,
) -> None:
    key = make_key("acme", "killed")
    async with serving(pair.settings) as dying:
        await piece(pair, "killed", "t", "last words", gateway=dying)
        await dying.stop()
    live = pair.a.app.state.live
    text = await live.store.read(key)
    if text is not None:
        # The same text ended by two at once: the second's message is a duplicate by its id.
        await asyncio.gather(
            live.partials.settle(key, text, None),
            pair.b.app.state.live.partials.settle(key, text, None),
        )

    async def kept() -> bool:
        return bool(await history(pair, "killed"))

    await until(kept)
    await pair.append("killed", say("anyone?"), wait=True)
    assert [event["content"] for event in await history(pair, "killed")] == [
        "anyone?",
        "last words",
    ]


@pytest.mark.long
async def test_a_claim_of_a_gateway_that_died_is_made_again_and_what_it_did_is_not_done_twice(
    pair: Pair,
) -> None:
    key, live = make_key("acme", "claimed"), pair.a.app.state.live

    class Dying:
        """Ends as a process would that is killed after it appended the message."""

        killed = False

        async def settle(self, at: Any, closed: Any, ending: Any) -> None:
            await live.backend.append(
                at.tenant, [(at.conversation, say(closed.text, "assistant", status="interrupted"))]
            )
            self.killed = True
            raise KafkaUnavailable("killed")

    gateways = (live, pair.b.app.state.live)
    for running in gateways:
        await running.sweeper.stop()
    try:
        # Nobody else sees this text, or its message: what ends it is the sweeper's own work.
        end = (await live.backend.log.end_offsets())[partition_of(key, 4)]
        assert (await live.store.append(key, "t", "kept once", None, end)).name == "ok"
        dying = Dying()
        first = Sweeper(live.store, dying, live.endings, every=1, claim=0.3)  # type: ignore[arg-type]

        async def died() -> bool:
            assert await first.sweep() == 0
            return dying.killed

        await until(died)
        second = Sweeper(live.store, live.partials, live.endings, every=1, claim=5)
        await until(second.sweep)
    finally:
        for running in gateways:
            running.sweeper.start()
    assert await live.store.read(key) is None
    await pair.append("claimed", say("ok"), wait=True)
    assert [event["content"] for event in await history(pair, "claimed")] == ["ok", "kept once"]


async def test_too_much_text_and_malformed_pieces_are_refused(pair: Pair) -> None:
    assert (await piece(pair, "big", "t", "x" * (1 << 20))).status_code == 202
    assert (await piece(pair, "big", "t", "x")).status_code == 413
    for body, status in (
        ({"turn_id": "t"}, 422),
        ({"turn_id": "", "delta": "x"}, 422),
        ({"turn_id": "t", "delta": 3}, 422),
        ({"turn_id": "t", "delta": "x", "offset": -1}, 422),
        ({"turn_id": "t", "delta": "x", "offset": True}, 422),
        ({"turn_id": "t", "delta": "x", "more": 1}, 422),
        ([], 422),
    ):
        answer = await pair.a.http.post(
            "/v1/conversations/big/partial", content=json.dumps(body), headers=pair.auth()
        )
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    reader = await pair.a.http.post(
        "/v1/conversations/big/partial", content=b"{}", headers=pair.auth("reader")
    )
    assert reader.status_code == 403


async def test_a_tenants_texts_are_bounded_until_some_have_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials, "MOST_TEXTS", 1_000_000)

    async def put(name: str, text: str) -> httpx.Response:
        return await piece(pair, name, "t", text, gateway=pair.b)

    for n in range(2):
        assert (await put(f"much-{n}", "\N{GRINNING FACE}" * 100_000)).status_code == 202
    refused = await put("much-2", "x" * 300_000)
    assert refused.status_code == 429 and "texts in progress of tenant acme" in refused.text
    assert (await put("much-2", "x" * 1_000)).status_code == 202
    other = await pair.b.http.post(
        "/v1/conversations/much-2/partial",
        content=json.dumps({"turn_id": "t", "delta": "x" * 900_000}),
        headers=pair.auth("rival"),
    )
    assert other.status_code == 202
    await pair.append("much-0", say("done", "assistant"))

    async def has_room() -> bool:
        return (await put("much-2", "x" * 300_000)).status_code == 202

    await until(has_room)


async def test_forgetting_deletes_the_text_and_tells_subscribers(pair: Pair) -> None:
    async with subscribed(pair.b, "/v1/conversations/forgotten/stream", pair.keys["acme"]) as one:
        await piece(pair, "forgotten", "t", "secret")
        await one.until(lambda: one.of("partial"))
        assert await pair.a.app.state.live.forget("acme", "forgotten")
        await one.until(lambda: one.of("partial")[-1].get("ended") == "interrupted")
    assert await pair.a.app.state.live.store.read(make_key("acme", "forgotten")) is None
    assert not await pair.a.app.state.live.forget("acme", "forgotten")


async def test_a_piece_that_is_on_its_way_while_its_conversation_is_erased_is_not_stored(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, key = pair.a.app.state.live, make_key("acme", "erased-meanwhile")
    await pair.append("erased-meanwhile", say("hello"), wait=True)
    append = live.store.append

    async def late(*args: Any) -> Any:
        if args[-1] is not None:  # the log's end is known: the conversation was there
            await pair.b.app.state.live.forget("acme", "erased-meanwhile", True)
        return await append(*args)

    monkeypatch.setattr(live.store, "append", late)
    with pytest.raises(Erased):
        await live.partial("acme", "erased-meanwhile", "t", "secret")
    assert await live.store.read(key) is None
    assert (await append(key, "another", "secret", None, 9)).name == "erased"


async def test_a_turn_that_was_superseded_stays_over_although_the_other_gateway_takes_its_text_away_first(
    pair: Pair,
) -> None:
    held, key = pair.a.app.state.live.store, make_key("acme", "overtaken")
    assert (await held.append(key, "one", "half", None, 7)).name == "ok"
    assert await held.close(key, text=("one", 7), superseded=True)
    assert await pair.b.app.state.live.store.end(key, "one", 7), (
        "it heard of the message that keeps the text"
    )
    assert (await held.append(key, "one", "more", None, 8)).name == "over"
    assert (await held.append(key, "two", "anew", None, 8)).name == "ok"
    assert await held.forget(key)


async def test_the_message_that_another_text_became_does_not_end_one_that_began_with_it(
    pair: Pair,
) -> None:
    store, key = pair.a.app.state.live.store, make_key("acme", "together")
    (position,) = await pair.append("together", say("question"), wait=True)
    since = int(position.split("-")[1]) + 1
    assert (await store.append(key, "one", "first", 0, since)).name == "ok"
    assert await store.close(key, text=("one", since), superseded=True)
    assert await store.end(key, "one", since)
    path = "/v1/conversations/together/stream"
    async with subscribed(pair.a, path, pair.keys["acme"]) as subscriber:
        assert (await store.append(key, "two", "second", 0, since)).name == "ok"
        await subscriber.until(lambda: heard(subscriber) == "second")
        kept = {"id": kept_id(key, "one", since), "status": "interrupted"}
        await pair.append("together", say("first", "assistant", **kept))
        await subscriber.until(
            lambda: any(one.data.get("content") == "first" for one in subscriber.events())
        )
        answer = await piece(pair, "together", "two", " and more", offset=6)
        assert answer.status_code == 202, answer.text
        await subscriber.until(lambda: heard(subscriber) == "second and more")
    assert (await store.read(key)).text == "second and more"


async def test_of_texts_that_later_turns_end_a_tenant_has_two_under_way_and_others_do_not_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[str] = []
    go = asyncio.Event()

    find = TextEndings.find

    async def held(self: TextEndings, key: Key, text: Text, patience: float = 1.0) -> Ending | None:
        if key.conversation.startswith("superseded-") and key.tenant == "acme":
            looking.append(key.conversation)
            await go.wait()
        return await find(self, key, text, patience)

    async def two_look() -> bool:
        return len(looking) == partials.ENDINGS

    names = [f"superseded-{i}" for i in range(6)]
    for name in names:
        assert (await piece(pair, name, "one", "half a sen")).status_code == 202
    monkeypatch.setattr(TextEndings, "find", held)
    rest = asyncio.gather(*(piece(pair, name, "two", "Anew") for name in names))
    await until(two_look)
    for turn in ("one", "two"):  # the rival's second turn ends its first
        answer = await pair.a.http.post(
            "/v1/conversations/superseded-0/partial",
            json={"turn_id": turn, "delta": "Well"},
            headers=pair.auth("rival"),
        )
        assert answer.status_code == 202, answer.text
    assert len(looking) == partials.ENDINGS
    go.set()
    assert [answer.status_code for answer in await rest] == [202] * len(names)
    assert sorted(looking) == names


@pytest.mark.long
async def test_of_turns_that_speak_at_once_every_text_is_kept_once(pair: Pair) -> None:
    texts = {f"text {i}" for i in range(24)}

    async def speak(i: int) -> None:
        gateway = (pair.a, pair.b)[i % 2]
        body = json.dumps({"turn_id": f"turn-{i}", "delta": f"text {i}", "offset": 0})
        answer = await gateway.http.post(
            "/v1/conversations/crowd/partial", content=body, headers=pair.auth()
        )
        assert answer.status_code == 202, answer.text

    await asyncio.gather(*map(speak, range(24)))
    kept: list[str] = []

    async def all_kept() -> bool:
        page = await pair.a.http.get(
            "/v1/conversations/crowd/history?limit=500", headers=pair.auth()
        )
        kept[:] = [
            event["content"]
            for event in page.json().get("events", [])
            if event["type"] == "message"
        ]
        return len(kept) >= len(texts)

    await until(all_kept)
    assert sorted(kept) == sorted(texts)


async def test_a_partial_with_the_token_of_a_turn_that_is_over_or_overtaken_answers_409(
    pair: Pair,
) -> None:
    def piece(turn: str, delta: str, **headers: str) -> Any:
        return post(pair, "fenced/partial", {"turn_id": turn, "delta": delta}, **headers)

    assert (
        await piece("a", "x", Fencing_Token="3")
    ).status_code == 409  # no such conversation, no turn
    old = str((await post(pair, "fenced/turns", {"turn_id": "a"})).json()["fencing_token"])
    assert (await piece("a", "mine", Fencing_Token=old)).json() == {"turn_id": "a", "offset": 4}
    new = str(
        (await post(pair, "fenced/turns", {"turn_id": "b", "policy": "interrupt"})).json()[
            "fencing_token"
        ]
    )
    refused = await piece("a", " and more", Fencing_Token=old)
    assert refused.status_code == 409
    assert f"that of token {new} is" in refused.json()["detail"]
    assert (await piece("b", "hers", Fencing_Token=new)).status_code == 202
    assert (
        await piece("c", "from outside")
    ).status_code == 202  # without a token nobody is kept out
    assert (await post(pair, "fenced/turns/b/end", Fencing_Token=new)).status_code == 202
    over = await piece("b", "late", Fencing_Token=new)
    assert over.status_code == 409
    assert "no turn is" in over.json()["detail"]
    assert (await piece("b", "x", Fencing_Token="one")).status_code == 422
    assert (await piece("b", "x", If_Match="0-1")).status_code == 422
