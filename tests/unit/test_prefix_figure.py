"""Figure `prefix` counts what it says, its peers are what they say, and its conversations reach what they are for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

pytest.importorskip("psutil", reason="the benchmarks' packages are not installed: make bench does it")
pytest.importorskip("langchain_core", reason="the benchmarks' packages are not installed: make bench does it")

from benchmarks.prefix import calls_of, tally_of
from benchmarks.support.long_talks import generated_talks, joined
from benchmarks.support.prefixes import Tally, Weights, langchain_trim, low_water, peer_tally, sliding
from projections.render import render_openai

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
    # Of 2 + 3 messages 2 + 1 were kept: what stands behind a change is lost though it did not change itself.
    assert (tally.kept, tally.tokens, tally.breaks) == (3 * one, 5 * one, 1)
    assert tally.lost == {"summary": 2 * one}
    tally.call([body(9)], {"summary": "s", "step": 1})
    assert tally.broken == {"summary": 1, "step": 1} and tally.row()["kept_at_a_cut"] == pytest.approx(1 / 7, abs=1e-4)


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
            whole, max_tokens=budget, token_counter=lambda given: sum(cost[m.content] for m in given), strategy="last", start_on="human"
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
    assert len(set(starts)) > 3 and all(start % 2 == 0 for start in starts) and starts == sorted(starts)


def test_sliding_shifts_once_it_is_full() -> None:
    talk = [message(n, "assistant" if n % 2 else "user") for n in range(80)]
    tally = peer_tally(sliding, talk, 0, Weights())
    assert tally.calls == 40 and tally.breaks == 25 and tally.most == 30


async def test_our_side_renders_before_each_of_the_assistants_messages_with_summaries_in_it() -> None:
    talk = generated_talks(80)["agent"]
    assert talk == generated_talks(80)["agent"]
    tally = await tally_of(talk, {"working_budget": 2_000}, Weights())
    assert tally.calls == sum(m["role"] == "assistant" for m in talk)
    assert tally.broken["summary"] > 3 and 0.3 < tally.share < 1.0
    summaries = set()
    async for window in calls_of(talk, {"working_budget": 2_000}):
        summaries.add(window.meta.summary and window.meta.summary.summary_id)
        assert window.meta.skipped == 0
        render_openai(window)
    assert len(summaries) > 3


def test_runs_are_joined_under_one_system_prompt() -> None:
    run = [{"role": "system", "content": "s"}, message(1), message(2, "assistant")]
    assert [m["role"] for m in joined([run, run])] == ["system", "user", "assistant", "user", "assistant"]
