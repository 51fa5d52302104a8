"""What a summariser is given is what stands in the window: no more, no less; and a window that is
due comes to its summary.

Over the real compactor and a log in memory, event by event.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from projections.events.codec import decode_event
from projections.events.types import SummaryEvent, absolute
from projections.fold.apply import apply
from projections.fold.outcomes import Outcome, Status
from projections.names import Key
from projections.policy.policy import Rules
from projections.window import log_ranges
from projections.window import window as windows
from projections.window.entry import RENDERED, Kind
from projections.window.recent_ids import RecentIds
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, request_for
from streams.compaction.span import read_span
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.log.rollback_history import fetch_needed
from streams.log.said import MOST_ANSWERED, chars_of
from streams.settings.settings import Settings
from tests.support import compacted_talk
from tests.support.compacted_talk import Talk
from threadfold.service.drafts import Conditions, Drafter
from threadfold.testing import MemoryLog

KEY = Key("acme", "talk")
SMALL = {
    "working_budget": 400,
    "keep_recent_tokens": 20,
    "min_messages": 4,
    "summary_max_tokens": 100,
    "loop_guard": 0,
}


class Listener:
    """A summariser that keeps what it was given."""

    name = "listener"

    def __init__(self) -> None:
        self.given: list[str] = []
        self.made_of: dict[str, list[str]] = {}
        """What each text was made of."""

    async def summarize(self, given: SummaryInput) -> SummaryText:
        said, text = [message.text for message in given.messages], f"short {len(self.made_of)}"
        self.given += said
        self.made_of[text] = said
        return SummaryText(text=text, tokens=8)


class Live:
    """A conversation that is folded as it is appended."""

    def __init__(self, rules: dict[str, Any] | None = None, **settings: Any) -> None:
        self.rules = Rules(rules or SMALL)
        self.log = MemoryLog(1)
        self.window = Window(KEY, 0, self.rules)
        self.listener = Listener()
        self.compactor = Compactor(
            Settings(kafka="unused", redis="unused", **settings),
            self.log,
            lambda name: self.listener,
        )
        self._drafter = Drafter(KEY.tenant, self.rules, 1, 8 << 20)
        self._next = 0

    async def say(
        self,
        flat: dict[str, Any],
        talk: str = KEY.conversation,
        expect: str | None = None,
        operator: bool = False,
    ) -> Outcome:
        conditions = Conditions(expect=expect) if expect else Conditions()
        drafts = self._drafter.drafts([(talk, flat)], "event", operator, None, conditions)
        await self.log.append(drafts.records)
        return await self._fold()

    async def user(self, text: str, id_: str | None = None) -> Outcome:
        return await self.say(
            {"type": "message", "role": "user", "content": text, **({"id": id_} if id_ else {})}
        )

    async def reply(self, text: str) -> Outcome:
        return await self.say({"type": "message", "role": "assistant", "content": text})

    async def call(self, id_: str, text: str = "") -> Outcome:
        calls = [{"id": id_, "name": "look", "arguments": "{}"}]
        return await self.say(
            {"type": "message", "role": "assistant", "content": text or None, "tool_calls": calls}
        )

    async def result(self, id_: str) -> Outcome:
        return await self.say({"type": "tool.result", "tool_call_id": id_, "content": "a row"})

    async def until_due(self) -> None:
        number = 0
        while self.window.meta.due is None:
            await self.reply(f"later {number} " + "and so on " * 10)
            number += 1

    async def summarise(self, most: int = 40) -> list[Status]:
        """Answer requests until the window is not due any more; what became of each summary."""
        found: list[Status] = []
        while self.window.meta.due is not None:
            assert len(found) < most, "it stays due"
            found.append(await self.summarise_once())
        return found

    async def summarise_once(self) -> Status:
        request = request_for(self.window, 1)
        assert request is not None
        await self.compactor.answer(request)
        return (await self._fold()).status

    async def _fold(self) -> Outcome:
        outcome = Outcome(Status.REJECTED, -1)
        rows = [
            row async for row in self.log.scan(0, self._next, (await self.log.end_offsets())[0] - 1)
        ]
        for row in rows:
            self._next = row.position.offset + 1
            if row.key == str(KEY).encode():
                offset, event = row.position.offset, decode_event(row.value or b"")
                outcome = apply(self.window, offset, event)
                if outcome.status is Status.NEEDS_HISTORY:
                    outcome = apply(
                        self.window,
                        offset,
                        event,
                        await fetch_needed(self.log, self.window, outcome),
                    )
        return outcome


@pytest.mark.parametrize("how", ["another conversation's event", "an unmet condition"])
async def test_a_rollback_that_the_fold_refused_leaves_nothing_out_of_the_summary(how: str) -> None:
    live = Live()
    await live.say({"type": "message", "role": "user", "content": "elsewhere"}, talk="other")
    for number in range(10):
        await live.user(f"said {number} " + "and more " * 10, f"e{number}")
    if how == "an unmet condition":
        refused = await live.say({"type": "rollback", "to": "e3"}, expect="e2")
    else:
        refused = await live.say({"type": "rollback", "to": "0-0"})
    assert refused.status is Status.REJECTED
    await live.until_due()
    last = live.window.meta.due.last if live.window.meta.due else -1
    assert await live.summarise(1) == [Status.APPLIED]
    wanted = [f"said {number}" for number in range(9)]
    assert last > 10, "all were due but the newest of the user's"
    assert [text[:6] for text in live.listener.given if text.startswith("said")] == wanted


async def test_a_rollback_that_another_one_undid_leaves_nothing_out_though_the_span_goes_around_its_target() -> (
    None
):
    live = Live()
    for number, text in enumerate(
        ("hello", "how can I help?", "BOOK THE FLIGHT", "BOOKED", "and a hotel", "hm")
    ):
        await (live.reply(text) if number % 2 else live.user(text))
    assert (await live.say({"type": "rollback", "to": "0-0"})).status is Status.APPLIED
    assert (await live.say({"type": "rollback", "to": "0-4"})).status is Status.APPLIED
    await live.until_due()
    assert live.window.meta.due is not None and live.window.meta.due.kept == (4,)
    assert await live.summarise(1) == [Status.APPLIED]
    assert {"BOOK THE FLIGHT", "BOOKED"} <= set(live.listener.given)


async def test_a_summary_says_which_events_of_its_span_stand() -> None:
    live = Live()
    for number in range(6):
        await live.user(f"said {number}")
    assert (await live.say({"type": "rollback", "to": "0-2"})).status is Status.APPLIED
    refused = await live.say({"type": "rollback", "to": "nothing"})
    assert refused.status is Status.REJECTED
    await live.reply("and on")
    await live.until_due()
    assert await live.summarise(1) == [Status.APPLIED]
    (summary,) = [
        event
        async for raw in live.log.scan(0, 0, live.window.meta.position)
        if isinstance(event := decode_event(raw.value or b""), SummaryEvent)
    ]
    span = summary.data.span
    assert span.stands is not None
    stands = dict(zip(absolute(span.positions), span.stands, strict=True))
    assert [stands[offset] for offset in range(2)] == ["1", "1"]
    # Those that the rollback left behind, the rollback, and the one that was refused.
    assert [stands[offset] for offset in range(3, 8)] == ["0"] * 5
    assert set(span.stands[-3:]) == {"1"}
    assert span.count == len(span.positions) == len(span.stands)
    # What stands is what the summariser was given.
    assert span.stands.count("1") == len(live.listener.given)


async def held(live: Live, texts: int, begin: int = 0) -> None:
    for number in range(begin, begin + texts):
        await live.user(f"said {number}.")


@pytest.mark.parametrize("unknown", ["offsets", "bounds"])
async def test_what_was_abandoned_in_a_range_of_unknown_offsets_is_not_summarised(
    unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MAX_ENTRIES", 60)
    if unknown == "offsets":
        monkeypatch.setattr(log_ranges, "MAX_HELD_POSITIONS", 12)
    live = Live({**SMALL, "compaction": False, "working_budget": 2_000})
    await held(live, 5)
    await live.say({"type": "rollback", "to": "0-2"})
    if unknown == "bounds":
        # As where more events were abandoned than ids are known.
        monkeypatch.setattr(RecentIds, "between", lambda *_: None)
        await live.user("gone as well")
        wide = log_ranges.abandoned_since(live.window.recent_ids, 2, 5)
        live.window.replace_tail(
            [wide if entry.kind == Kind.ABANDONED else entry for entry in live.window.tail]
        )
    await held(live, 80, 100)
    head = live.window.tail[0]
    assert head.kind == Kind.HELD and head.positions is None
    live.window.rules = Rules(SMALL)
    await live.until_due()
    assert set(await live.summarise()) == {Status.APPLIED}
    given = set(live.listener.given)
    assert {"said 0.", "said 2.", "said 100.", "said 120."} <= given and not given & {
        "said 3.",
        "said 4.",
    }


async def test_a_span_that_goes_around_something_is_found_anew_when_that_was_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows, "MAX_ENTRIES", 120)
    live = Live()
    await live.user("please do the big task")
    await live.until_due()
    assert live.window.meta.due is not None and live.window.meta.due.kept
    for number in range(140):
        await live.reply(f"step {number}")
    assert live.window.tail[0].kind == Kind.HELD
    assert set(await live.summarise()) == {Status.APPLIED}


async def test_a_call_that_an_operator_drops_lets_go_of_a_result_that_came_before_it() -> None:
    live = Live({**SMALL, "keep_recent_tokens": 200})
    await live.user("said 0 " + "and more " * 10)
    await live.result("k")
    for _ in range(6):
        await live.user("a question " * 20)
    await live.call("k")
    await live.user("said 9 " + "and more " * 10)
    await live.say(
        {"type": "event.dropped", "position": "0-8", "reason": "a secret"}, operator=True
    )
    while live.window.meta.due is None:
        await live.reply("a long answer " * 20)
    assert set(await live.summarise()) == {Status.APPLIED}


async def test_kept_calls_over_the_cap_do_not_hide_the_held_range_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = Live(summary_input_tokens=300)
    await live.user("do it")
    await live.call("k1", "first plan " * 60)
    await live.call("k2", "second plan " * 100)
    for number in range(6):
        await live.reply(f"step {number} done")
    await live.until_due()
    assert (await live.summarise(1))[0] is Status.APPLIED
    await live.result("k1")
    await live.result("k2")
    for number in range(6):
        await live.reply(f"more {number} done")
    await live.say({"type": "rollback", "to": f"0-{live.window.meta.position - 3}"})
    monkeypatch.setattr(windows, "MAX_ENTRIES", 120)
    number = 0
    while not any(entry.kind == Kind.HELD for entry in live.window.tail):
        await live.reply(f"on {number}")
        number += 1
    await live.until_due()
    assert set(await live.summarise()) == {Status.APPLIED}


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))]
)
async def test_a_summariser_is_given_just_what_the_tail_says(seed: int) -> None:
    rng, live, texts = random.Random(seed), Live(), dict[int, str]()
    summaries = 0
    for number in range(400):
        at = (await live.log.end_offsets())[0]
        kind = rng.random()
        if kind < 0.8:
            texts[at] = f"said {number}" + " and more" * rng.randrange(1, 12)
            await (
                live.user(texts[at], f"e{number}") if rng.random() < 0.5 else live.reply(texts[at])
            )
        elif kind < 0.9:
            to = rng.choice(
                [
                    f"0-{rng.randrange(max(0, at - 40), at + 1)}",
                    f"e{rng.randrange(number + 1)}",
                    "nobody",
                ]
            )
            await live.say(
                {"type": "rollback", "to": to},
                expect=f"e{number - 1}" if rng.random() < 0.2 else None,
            )
        elif kind < 0.93:
            await live.say(
                {"type": "event.dropped", "position": f"0-{rng.randrange(at + 1)}"}, operator=True
            )
        elif kind < 0.96:
            await live.say(
                {"type": "message", "role": "user", "content": "elsewhere"}, talk="other"
            )
        due = live.window.meta.due
        if due is not None and rng.random() < 0.4:
            stands = [
                e.offset
                for e in live.window.tail
                if e.kind in RENDERED and e.offset <= due.last and e.offset not in due.kept
            ]
            live.listener.given.clear()
            assert await live.summarise_once() is Status.APPLIED
            summary = live.window.meta.summary
            assert summary is not None
            # Or of an answer that a rollback had left behind.
            assert live.listener.made_of[summary.text] == [texts[offset] for offset in stands]
            summaries += 1
    assert summaries > 5


async def test_a_suspension_of_a_call_that_waits_for_its_summary_does_not_block_compaction() -> (
    None
):
    talk = Talk(compacted_talk.SMALL)
    talk.call("a")
    talk.chat(8)
    assert talk.window.meta.due is not None
    talk.say("suspension", suspension_id="s", kind="approval", tool_call_id="a")
    assert (await talk.summarise()).status is Status.APPLIED
    assert '"id":"a"' in talk.text()


async def test_a_span_cut_to_the_input_cap_ends_beyond_what_is_summarised() -> None:
    talk = Talk(compacted_talk.SMALL, input_tokens=200)
    talk.call("a", "b")
    talk.say("suspension", suspension_id="s", kind="approval", tool_call_id="a")
    talk.say("tool.result", tool_call_id="b", content="found " * 150)
    talk.chat(10)
    assert (await talk.summarise()).status is Status.APPLIED and talk.window.tail[0].offset == 0
    talk.say("resolution", suspension_id="s", outcome="approved")
    talk.say("tool.result", tool_call_id="a", content="done")
    talk.chat(10)
    for _ in range(40):
        if talk.window.meta.due is None:
            break
        assert (await talk.summarise()).status is Status.APPLIED
    assert talk.window.meta.due is None


async def test_a_span_cut_to_the_input_cap_does_not_end_in_what_a_rollback_abandoned() -> None:
    talk = Talk({**compacted_talk.SMALL, "min_messages": 8}, input_tokens=60)
    first = talk.say("message", role="user", content="hi")
    talk.say("message", role="user", content="gone")
    talk.call("a")
    talk.say("rollback", to=f"0-{first}")
    talk.chat(20)
    assert (await talk.summarise()).status is Status.APPLIED


async def test_a_span_cut_to_the_input_cap_names_only_its_own_results_that_belong_to_no_call() -> (
    None
):
    talk = Talk(compacted_talk.SMALL, input_tokens=60)
    for name in ("call_1", "call_2"):
        talk.say("tool.result", tool_call_id=name, content="stray " * 700)
    talk.chat(1)
    request = request_for(talk.window, 1)
    assert request is not None and request.last == 1 and absolute(request.apart) == [0, 1]
    for own in (0, 1):
        assert (await talk.summarise()).status is Status.APPLIED
        event = talk.log[-1][1]
        assert isinstance(event, SummaryEvent) and event.data.span.apart == [own]


def asked_for(talk: Talk, control: Iterable[dict[str, Any]]) -> CompactionRequest:
    """The request for a summary of these events, which cost no tokens, between two messages."""
    talk.chat(1)
    for event in control:
        talk.say(event.pop("type"), **event)
    talk.chat(1)
    talk.say("compaction.requested")
    request = request_for(talk.window, 1)
    assert request is not None
    return request


async def test_a_span_of_answers_that_no_window_counts_is_cut_and_their_begin_is_read() -> None:
    talk = Talk(compacted_talk.SMALL, input_tokens=50_000)
    request = asked_for(
        talk,
        (
            event
            for number in range(8)
            for event in (
                {"type": "suspension", "suspension_id": f"s{number}", "kind": "input"},
                {
                    "type": "resolution",
                    "suspension_id": f"s{number}",
                    "outcome": "answered",
                    "content": "this one " * 20_000,
                },
            )
        ),
    )
    span = await read_span(talk.messages, request, talk.window.key, most_tokens=50_000)
    assert not span.whole
    said = [chars_of(event) for _, event in span.summarised]
    assert said[2:] == [0, MOST_ANSWERED] * 3 + [0], "two messages come before them"
    assert (await talk.summarise()).status is Status.APPLIED


async def test_a_span_of_many_events_that_cost_nothing_is_cut() -> None:
    talk = Talk(compacted_talk.SMALL, input_tokens=400)
    suspension = {"suspension_id": "s"}
    request = asked_for(
        talk,
        (
            event
            for _ in range(60)
            for event in (
                {"type": "suspension", "kind": "approval", **suspension},
                {"type": "resolution", "outcome": "approved", **suspension},
            )
        ),
    )
    span = await read_span(talk.messages, request, talk.window.key, most_tokens=400)
    assert not span.whole and 40 < len(span.events) < 60
    assert (await talk.summarise()).status is Status.APPLIED
