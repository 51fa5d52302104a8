"""Figure `prefix` counts what it says, its peers are what they say, and its conversations reach
what they are for.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

pytest.importorskip(
    "psutil", reason="the benchmarks' packages are not installed: make bench does it"
)
pytest.importorskip(
    "langchain_core", reason="the benchmarks' packages are not installed: make bench does it"
)

from benchmarks import prefix
from benchmarks.prefix import calls_of, tally_of
from benchmarks.support.long_talks import airline_file, airline_sets, generated_sets, joined
from benchmarks.support.prefixes import (
    Tallies,
    Tally,
    Weights,
    begun_alike,
    langchain_trim,
    low_water,
    peer_tally,
    sliding,
)
from projections.events.tokenizer import count
from projections.render.render import render_openai

WORD = "parcel " * 10


def message(n: int, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": f"{n}: {WORD}"}


def body(n: int) -> bytes:
    return msgspec.json.encode(message(n))


def test_a_share_is_of_the_tokens_that_the_next_call_begins_with() -> None:
    weights = Weights()
    tally = Tally(weights)
    one = weights.of(body(1))
    assert one == weights.of(body(2)) > 10
    tally.call([body(1), body(2)])
    tally.call([body(1), body(2), body(3)])
    assert (tally.share, tally.breaks) == (1.0, 0)
    tally.call([body(1), body(9), body(3), body(4)], {"summary": "s"})
    # Of 2 + 3 messages 2 + 1 were kept: what stands behind a change is lost though it did not
    # change itself.
    assert (tally.kept, tally.tokens, tally.breaks) == (3 * one, 5 * one, 1)
    assert tally.lost == {"summary": 2 * one}
    tally.call([body(9)], {"summary": "s", "step": 1})
    assert tally.broken == {"summary": 1, "step": 1} and tally.row()[
        "kept_at_a_cut"
    ] == pytest.approx(1 / 7, abs=1e-4)


def test_of_the_first_message_that_changed_the_common_beginning_of_its_text_is_kept() -> None:
    weights, tally = Weights(), Tally(Weights())
    summary = "user: I never fly before 11 AM.\nassistant: Booked XY377."
    grown = summary + "\nuser: Cancel it, please."
    before, after = ({"role": "assistant", "content": text} for text in (summary, grown))
    tally.call([msgspec.json.encode(before), body(1)])
    tally.call([msgspec.json.encode(after), body(2)])
    whole = weights.of(msgspec.json.encode(before)) + weights.of(body(1))
    # The full stop may make one token with what comes behind it, so the last one need not be
    # common.
    assert (
        tally.tokens == whole
        and count(summary) - 1 <= tally.kept <= count(summary)
        and tally.breaks == 1
    )


def test_texts_are_compared_only_where_all_before_them_is_the_same() -> None:
    def said(role: str, text: Any, **more: Any) -> bytes:
        return msgspec.json.encode({"role": role, **more, "content": text})

    assert begun_alike(said("user", WORD + "a"), said("user", WORD + "b")) == count(WORD.strip())
    assert begun_alike(said("user", "a" + WORD), said("user", "b" + WORD)) == 0
    assert begun_alike(said("user", WORD), said("assistant", WORD)) == 0
    assert (
        begun_alike(
            said("tool", WORD, tool_call_id="1"), said("tool", WORD + "!", tool_call_id="2")
        )
        == 0
    )
    assert begun_alike(said("assistant", None), said("assistant", WORD)) == 0
    assert (
        begun_alike(
            said("user", [{"type": "text", "text": WORD}]),
            said("user", [{"type": "text", "text": WORD + "b"}]),
        )
        == 0
    )
    # Tokens, not characters: the first word is one token.
    assert begun_alike(said("user", "running"), said("user", "runway")) == 0


def test_a_set_sums_its_conversations_and_no_call_is_compared_across_two() -> None:
    weights = Weights()
    whole, talk = (
        Tallies(weights),
        [message(1), message(2, "assistant"), message(3), message(4, "assistant")],
    )
    for _ in range(3):
        whole += peer_tally(sliding, talk, 0, weights)
    assert (whole.by_call.calls, whole.by_call.pairs, whole.by_call.share) == (6, 3, 1.0)
    assert (whole.by_message.calls, whole.by_message.pairs, whole.by_message.share) == (12, 9, 1.0)


def test_a_shorter_render_keeps_no_more_than_it_holds() -> None:
    tally = Tally(Weights())
    tally.call([body(1), body(2)])
    tally.call([body(1)])
    assert tally.share == 0.5 and tally.breaks == 1


def test_langchain_is_given_enough_for_the_answer_it_gives_to_the_whole_conversation() -> None:
    from langchain_core.messages import convert_to_messages, trim_messages

    weights = Weights()
    talk = [message(n, "assistant" if n % 3 else "user") for n in range(600)]
    bodies = [msgspec.json.encode(m) for m in talk]
    whole = convert_to_messages(talk)
    cost = dict(zip([m.content for m in whole], map(weights.of, bodies), strict=True))
    for budget in (200, 1_000):
        kept = trim_messages(
            whole,
            max_tokens=budget,
            token_counter=lambda given: sum(cost[m.content] for m in given),
            strategy="last",
            start_on="human",
        )
        assert langchain_trim(weights)(talk, bodies, budget) == bodies[len(bodies) - len(kept) :]
        assert 0 < len(kept) < 100


def test_low_water_cuts_whole_groups_to_half_and_leaves_the_rest_alone() -> None:
    weights, cut = Weights(), low_water(Weights())
    talk = [message(n, "tool" if n % 2 else "assistant") for n in range(40)]
    bodies = [msgspec.json.encode(m) for m in talk]
    one, starts = weights.of(bodies[0]), []
    for n in range(2, 41, 2):
        kept = cut(talk[:n], bodies[:n], 10 * one)
        starts.append(n - len(kept))
        assert sum(map(weights.of, kept)) <= 10 * one + 20
    assert (
        len(set(starts)) > 3
        and all(start % 2 == 0 for start in starts)
        and starts == sorted(starts)
    )


def test_sliding_shifts_once_it_is_full() -> None:
    talk = [message(n, "assistant" if n % 2 else "user") for n in range(80)]
    found = peer_tally(sliding, talk, 0, Weights())
    assert found.by_call.calls == 40 and found.by_call.breaks == 25 and found.by_call.most == 30
    assert found.by_message.calls == 80 and found.by_message.breaks == 50


async def test_our_side_renders_before_each_of_the_assistants_messages_with_summaries_in_it() -> (
    None
):
    talk = generated_sets(80)["agent"][0]
    assert talk == generated_sets(80)["agent"][0]
    tally = (await tally_of(talk, {"working_budget": 2_000}, Weights())).by_call
    assert tally.calls == sum(m["role"] == "assistant" for m in talk)
    assert tally.broken["summary"] > 3 and 0.3 < tally.share < 1.0
    summaries = set()
    async for window, _ in calls_of(talk, {"working_budget": 2_000}):
        summaries.add(window.meta.summary and window.meta.summary.summary_id)
        assert window.meta.skipped == 0
        # Put together as a reader does it is what a render gives.
        assert (
            prefix.sent_messages(window)[0]
            == render_openai(window).bodies[len(window.state.pinned) :]
        )
    assert len(summaries) > 3


async def test_a_summary_that_the_fold_does_not_take_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "projections.fold.handlers.why_not",
        lambda *_: "its span does not end at an event of the window",
    )
    with pytest.raises(
        RuntimeError, match=r"did not take the SummaryEvent at offset [0-9]+: its span does not end"
    ):
        await tally_of(generated_sets(80)["agent"][0], {"working_budget": 2_000}, Weights())


@pytest.mark.skipif(airline_file() is None, reason="the shared airline conversations are not here")
def test_the_peers_published_shares_come_out_on_the_airline_set_counted_after_every_message() -> (
    None
):
    path = airline_file()
    assert path is not None
    talks, weights = airline_sets(path)["airline"], Weights()
    assert len(talks) == 20
    for peer, published in (
        (lambda: sliding, 0.13),
        (lambda: langchain_trim(weights), 0.84),
        (lambda: low_water(weights), 0.95),
    ):
        found = Tallies(weights)
        for talk in talks:
            found += peer_tally(peer(), talk, 4_000, weights)
        assert found.by_message.share == pytest.approx(published, abs=0.011)
        assert found.by_call.share < found.by_message.share


def test_runs_are_joined_under_one_system_prompt() -> None:
    run = [{"role": "system", "content": "s"}, message(1), message(2, "assistant")]
    assert [m["role"] for m in joined([run, run])] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
