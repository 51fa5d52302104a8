"""Text in progress after its end: repeats of its requests, and rollbacks to before it."""

from __future__ import annotations

from typing import Any

import pytest

from projections.names import make_key
from tests.support.stream_pair import Pair, history, piece, say
from tests.support.streaming import subscribed
from tests.support.worker import until
from threadfold.streaming.partial_end import Ending
from threadfold.streaming.partial_repeats import EndedText, whole_delta
from threadfold.streaming.partial_store import PartialStore, Text


def store_of(pair: Pair) -> PartialStore:
    return pair.a.app.state.live.store


async def spoken(pair: Pair, conversation: str) -> list[str]:
    """What was said in the conversation, the first message first."""
    events = reversed(await history(pair, conversation))
    return [event["content"] for event in events if event["type"] == "message"]


def rollback(to: str) -> dict[str, Any]:
    return {"type": "rollback", "to": to}


async def test_a_request_that_comes_again_after_its_message_begins_no_text(pair: Pair) -> None:
    text, key = "The parcel is in Oslo.", make_key("acme", "late")
    first, rest = {"offset": 0}, {"offset": 10}
    await piece(pair, "late", "t", text[:10], **first)
    await piece(pair, "late", "t", text[10:], **rest, gateway=pair.b)
    await pair.append("late", say(text, "assistant"), wait=True)

    async def gone() -> bool:
        return await store_of(pair).read(key) is None

    await until(gone)
    for gateway in (pair.b, pair.a):
        again = await piece(pair, "late", "t", text[:10], **first, gateway=gateway)
        assert (again.status_code, again.json()["offset"]) == (202, 10)
        again = await piece(pair, "late", "t", text[10:], **rest, gateway=gateway)
        assert (again.status_code, again.json()["offset"]) == (202, 22)
        assert await gone()
    # Nor does it end the text of the turn that speaks now.
    assert (await piece(pair, "late", "next", "It will", offset=0)).status_code == 202
    assert (await piece(pair, "late", "t", text[:10], **first)).status_code == 202
    assert (await piece(pair, "late", "t", " Well.", offset=30)).status_code == 409
    assert (await store_of(pair).read(key)).turn == "next"  # type: ignore[union-attr]
    await pair.append("late", say("It will come.", "assistant"), wait=True)
    assert await spoken(pair, "late") == [text, "It will come."]


async def test_a_next_text_of_the_turn_may_begin_with_the_same_words(pair: Pair) -> None:
    async with subscribed(pair.b, "/v1/conversations/same/stream", pair.keys["acme"]) as one:
        await piece(pair, "same", "t", "Let me check.", offset=0)
        await pair.append("same", say("Let me check.", "assistant"))
        await one.until(lambda: one.of("partial") and "ended" in one.of("partial")[-1])
        offset = 0
        for n, delta in enumerate(("Let", " me", " look.")):
            gateway = pair.b if n % 2 else pair.a
            answer = await piece(pair, "same", "t", delta, offset=offset, gateway=gateway)
            assert answer.status_code == 202, answer.text
            offset = answer.json()["offset"]
        assert offset == 12
        await one.until(lambda: one.of("partial")[-1].get("delta") == "Let me look.")
        await pair.append("same", say("Let me look.", "assistant"))
        await one.until(lambda: one.of("partial")[-1].get("ended") == "complete")


def test_a_delta_that_no_ended_text_has_goes_on_with_what_was_said_again() -> None:
    text = EndedText("t", 5, 0, "Hel", b"Hel")
    assert EndedText.parse(text.stored(2)) == text._replace(repeated=2)
    assert EndedText.parse(b"t\n5\n0\n\nw\xc3").text == "\nw", "a character may be cut"
    assert whole_delta([text], "He", 0) is None
    assert whole_delta([text], "el", 1) is None
    assert whole_delta([text], "Hello", 0) == "Hello"
    # It was on its way when the message came: it begins no text.
    assert whole_delta([text], "lo", 3) == "lo"
    assert whole_delta([text._replace(repeated=3)], "lo", 3) == "Hello"
    assert whole_delta([], "Hel", 0) == "Hel"


async def test_a_repeat_that_was_looked_at_before_its_text_ended_begins_none(pair: Pair) -> None:
    store, key = store_of(pair), make_key("acme", "between")
    assert (await store.append(key, "t", "once", 0, 7)).name == "ok"
    assert await store.end(key, "t", 7)
    assert (await store.append(key, "t", "once", 0, 7)).name == "begin"
    assert [text.text for text in await store.ended(key, "t")] == ["once"]
    assert await store.ended(key, "other") == []
    await store.forget(key, erased=True)
    assert await store.ended(key, "t") == []


async def test_a_rollback_to_before_a_text_ends_it_without_a_message(pair: Pair) -> None:
    path, key = "/v1/conversations/back/stream", make_key("acme", "back")
    begun = await pair.append("back", say("Hello", id="back-1"), say("What is my PIN?"), wait=True)
    async with subscribed(pair.b, path, pair.keys["acme"]) as one:
        await piece(pair, "back", "t", "Your PIN is", offset=0)
        await one.until(lambda: one.of("partial"))
        await pair.append("back", rollback("back-1"), say("What is the weather?"), wait=True)
        await one.until(lambda: one.of("partial")[-1].get("ended") == "interrupted")
        assert await store_of(pair).read(key) is None
        async with subscribed(pair.a, path, pair.keys["acme"]) as later:
            # Its writer goes on, and then begins again.
            assert (await piece(pair, "back", "t", " 4711", offset=11)).status_code == 409
            anew = await piece(pair, "back", "t", "Your PIN is 4711", offset=0)
            assert anew.status_code == 409 and "a rollback" in anew.json()["detail"]
            answer = await piece(pair, "back", "t2", "Sunny", offset=0, gateway=pair.b)
            assert answer.status_code == 202
            await later.until(lambda: later.of("partial"))
            assert later.of("partial")[0]["delta"] == "Sunny"
        # By position it is the same.
        await pair.append("back", rollback(begun[0]), wait=True)
        await one.until(lambda: one.of("partial")[-1].get("ended") == "interrupted")
    assert not {"Your PIN is", "Sunny"} & set(await spoken(pair, "back"))


async def test_a_rollback_to_behind_the_beginning_or_one_that_is_refused_ends_no_text(
    pair: Pair,
) -> None:
    live, key = pair.a.app.state.live, make_key("acme", "kept")
    (asked,) = await pair.append("kept", say("question"), wait=True)
    text = Text("t", int(asked.split("-")[1]) + 1, "answer")
    (behind, *_) = await pair.append("kept", say("hurry", id="kept-2"), say("up"), wait=True)
    for to in ("kept-2", behind, "nobody"):
        await pair.append("kept", rollback(to), wait=True)
    assert await live.endings.find(key, text) is None
    (at,) = await pair.append("kept", rollback(asked), wait=True)
    ending = await live.endings.find(key, text)
    assert ending == Ending(int(at.split("-")[1]), rollback=True)


@pytest.mark.parametrize("joins", [True, False])
async def test_a_text_that_nobody_here_has_followed_is_no_message_after_a_rollback(
    pair: Pair, joins: bool
) -> None:
    name = f"alone-{joins}"
    live, key = pair.a.app.state.live, make_key("acme", name)
    first, second = await pair.append(name, say("Hello"), say("What is my PIN?"), wait=True)
    await pair.append(name, rollback(first), say("What is the weather?"), wait=True)
    # It began before the rollback.
    await live.store.append(key, "t", "Your PIN is", 0, int(second.split("-")[1]) + 1)
    if joins:
        path = f"/v1/conversations/{name}/stream"
        async with subscribed(pair.b, path, pair.keys["acme"]) as one:
            await pair.append(name, say("And now?"))
            await one.until(lambda: one.events())
            assert not [part for part in one.of("partial") if "delta" in part]

    async def swept() -> bool:
        return await live.store.read(key) is None

    await until(swept)
    await pair.append(name, say("Well?"), wait=True)
    assert "Your PIN is" not in await spoken(pair, name)
