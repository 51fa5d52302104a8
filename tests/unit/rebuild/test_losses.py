"""What another generation would lose of what summaries hold is found in the stored windows, and
reported from the log with its reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from projections.events.types import MessageEvent, SummaryEvent
from projections.fold.replay import Logged, replay
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.differences import GONE, LANE_CUT, past_of, why_lost
from projections.render.render import render_openai
from projections.storage.records import NOTHING, Checkpoint, stub_write, write_of
from projections.storage.stubs import Stub, stub_of
from projections.window.meta import Quarantine
from projections.window.window import Window
from streams.rebuild import losses as module
from streams.rebuild.losses import CHANGES, UNREADABLE, Side, find_losses
from streams.rebuild.preview import Preview
from tests.support.compacted_talk import Talk
from tests.support.mirror import KEY
from threadfold.cli.policy_report import policy_report
from threadfold.testing import MemoryStore

BOUNDED: dict[str, Any] = {
    "model_window": 16_000,
    "reserve_tokens": 1_600,
    "working_budget": 900,
    "keep_recent_tokens": 300,
    "min_messages": 4,
    "summary_max_tokens": 300,
}
SMALLER: dict[str, Any] = {
    **BOUNDED,
    "working_budget": 300,
    "keep_recent_tokens": 100,
    "summary_max_tokens": 60,
    "reducers": [{"name": "keep_last_n_messages", "n": 4}],
}

CUT = 3
BEHIND = f"the log has lost its events before offset {CUT}"


async def summarised(policy: dict[str, Any], summaries: int = 2) -> Talk:
    """A talk with so many summaries, and something said after them."""
    talk = Talk(policy)
    for _ in range(summaries):
        while talk.window.meta.due is None:
            talk.chat(1)
        await talk.summarise()
    talk.chat(2)
    return talk


def under(policy: dict[str, Any], log: Sequence[Logged]) -> Window:
    return replay(KEY, 0, Rules(policy), log)


async def stored(*windows: Window) -> MemoryStore:
    """A store with one generation a window."""
    store = MemoryStore()
    for number, window in enumerate(windows, 1):
        write = write_of(window, NOTHING)
        await store.apply(number, 0, Checkpoint("", window.meta.position, 0, "d"), [write])
    return store


async def put_to_sleep(store: MemoryStore, stub: Stub | None = None) -> Stub:
    """Replace the first generation's window by its stub, or by this one; returns it."""
    now = await store.checkpoint(1, 0)
    assert now is not None
    if stub is None:
        _, (found,) = await store.read(1, 0, [KEY])
        assert found is not None
        stub = stub_of(found.fields, 0, b"its snapshot")
    await store.apply(1, 0, now, [stub_write(KEY, stub)])
    return stub


async def losses(
    store: MemoryStore, before: Rules, after: Rules, begin: int = 0
) -> tuple[dict[Key, str], int]:
    rounds = 0

    async def catch_up() -> None:
        nonlocal rounds
        rounds += 1

    sides = Side(1, before), Side(2, after)
    return await find_losses(store, *sides, {0: begin}, catch_up), rounds


async def loses_events(talk: Talk, after: Window) -> None:
    """A switch to ``after``, or to no window at all, loses events of the talk."""
    assert why_lost(past_of(talk.window), after) == GONE
    missing = await stored(talk.window)
    await missing.apply(2, 0, Checkpoint("", talk.window.meta.position, 0, "d"), [])
    for store in (await stored(talk.window, after), missing):
        assert await losses(store, talk.rules, Rules(BOUNDED)) == ({KEY: GONE}, 1)
        found, _ = await losses(store, talk.rules, Rules(BOUNDED), CUT)
        assert found == {KEY: BEHIND}


async def test_a_smaller_budget_and_a_limit_lose_nothing() -> None:
    talk = await summarised(BOUNDED)
    after = under(SMALLER, talk.log)
    assert why_lost(past_of(talk.window), after) is None
    store = await stored(talk.window, after)
    assert await losses(store, talk.rules, Rules(SMALLER)) == ({}, 0)


async def test_a_log_that_lost_its_beginning_loses_what_its_summaries_hold() -> None:
    talk = await summarised(BOUNDED)
    after = under(BOUNDED, talk.log[CUT:])
    assert after.meta.summary is None
    await loses_events(talk, after)


async def test_a_log_that_lost_events_of_a_window_without_a_summary_loses_them() -> None:
    talk = Talk(BOUNDED)
    talk.chat(2)
    after = under(BOUNDED, talk.log[1:])
    assert talk.window.meta.summary is None
    assert why_lost(past_of(after), talk.window) is None
    await loses_events(talk, after)


async def test_a_window_that_an_event_stops_under_the_other_rules_is_lost() -> None:
    talk = Talk(BOUNDED)
    talk.chat(2)
    after = under(BOUNDED, talk.log[:1])
    after.meta.quarantine = Quarantine(talk.log[1][0], "it fails", last=talk.log[1][0])
    store = await stored(talk.window)
    done = Checkpoint("", talk.window.meta.position, 0, "d")
    await store.apply(2, 0, done, [write_of(after, NOTHING)])
    found, _ = await losses(store, talk.rules, Rules(BOUNDED))
    assert found == {KEY: "it would be parked at 0-1: it fails"}


def parked(talk: Talk, at: int, cause: str) -> Window:
    """The talk's window, parked at an event: the later ones wait."""
    window = under(talk.rules.deployment, talk.log[:at])
    window.quarantine(talk.log[at][0], cause)
    for offset, _ in talk.log[at + 1 :]:
        window.add_waiting(offset)
    window.advance(talk.log[-1][0])
    return window


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned and summarised", "said"])
async def test_what_a_parked_window_holds_of_a_lost_beginning_is_lost_and_no_rule_is_blamed(
    pinned: bool,
) -> None:
    talk = Talk(BOUNDED)
    if pinned:
        talk.say("message", role="system", content="rule " * 20)
        while talk.window.meta.due is None:
            talk.chat(1)
        await talk.summarise()
    else:
        talk.chat(2)
    at = len(talk.log)
    talk.chat(8)
    live, after = parked(talk, at, "it fails"), under(BOUNDED, talk.log[CUT:])
    assert after.meta.events > live.meta.events
    store = await stored(live, after)
    assert (await losses(store, talk.rules, talk.rules, CUT))[0] == {KEY: BEHIND}
    # Of a whole log nothing is lost.
    whole = await stored(live, under(BOUNDED, talk.log))
    for begin in (0, CUT):
        assert (await losses(whole, talk.rules, talk.rules, begin))[0] == {}


async def test_a_conversation_that_begins_behind_a_lost_beginning_loses_nothing_by_it() -> None:
    talk = Talk(ROOMY)
    for _ in range(CUT):
        talk.messages.put(0, b"acme/other", None)
    pinning(talk).chat(2)
    begin = talk.log[0][0]
    assert begin == CUT
    store = await stored(parked(talk, 5, "it fails"), under(ROOMY, talk.log))
    assert (await losses(store, talk.rules, talk.rules, begin))[0] == {}
    # What rules take from it, they are blamed for.
    store = await stored(talk.window, under(NARROW, talk.log))
    assert (await losses(store, talk.rules, Rules(NARROW), begin))[0] == {KEY: LANE_CUT}


async def test_a_longer_conversation_than_the_recent_ids_loses_what_the_log_has_lost() -> None:
    talk = pinning(Talk(ROOMY))
    talk.chat(520)
    assert talk.window.recent_ids.added > len(talk.window.recent_ids)
    for cut in (1, 10, len(talk.log) - 40):
        after = under(ROOMY, talk.log[cut:])
        why = f"the log has lost its events before offset {cut}"
        assert why_lost(past_of(talk.window), after, cut) == why
        store = await stored(talk.window, after)
        assert (await losses(store, talk.rules, talk.rules, cut))[0] == {KEY: why}
        # The generation that holds them lacks nothing of the one that does not.
        assert why_lost(past_of(after), talk.window, cut) is None


async def test_a_generation_that_an_event_without_its_past_stops_says_so_on_the_way_back() -> None:
    talk = Talk(BOUNDED)
    talk.chat(4)
    cause = f"partition 0 of the log begins at offset {CUT}: a rollback needs events before that"
    back = parked(talk, 5, cause)
    store = await stored(under(BOUNDED, talk.log[CUT - 1 :]), back)
    found, _ = await losses(store, talk.rules, talk.rules, CUT - 1)
    assert found == {KEY: f"it would be parked at 0-5: {cause}"}


ROOMY = {**BOUNDED, "pinned_max_tokens": 400}
NARROW = {**BOUNDED, "pinned_max_tokens": 60}


def pinning(talk: Talk) -> Talk:
    """Say a system text, and pin a result: 150 tokens together."""
    talk.say("message", role="system", content="rule " * 60)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="code " * 60, pinned=True)
    return talk


async def test_a_pinned_lane_that_is_cut_loses_what_was_pinned() -> None:
    talk = pinning(Talk(ROOMY))
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    talk.chat(1)
    assert "rule rule" in talk.text() and "code code" in talk.text()
    after = under(NARROW, talk.log)
    assert after.covered_to == talk.window.covered_to
    store = await stored(talk.window, after)
    assert await losses(store, talk.rules, Rules(NARROW)) == ({KEY: LANE_CUT}, 1)
    document, lines = await report(talk, Rules(NARROW))
    assert [one["because"] for one in document["losses"]] == [LANE_CUT]
    assert any("what 1 conversations hold (a switch needs --accept-loss)" in one for one in lines)


async def test_a_pinned_result_is_lost_while_it_is_in_the_tail_if_the_lane_has_no_room_for_it() -> (
    None
):
    talk = Talk(ROOMY)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="code " * 100, pinned=True)
    talk.chat(1)
    assert not talk.window.state.pins and "code code" in talk.text()
    for narrower, found in ((NARROW, {KEY: LANE_CUT}), ({**ROOMY, "pinned_max_tokens": 200}, {})):
        after = under(narrower, talk.log)
        store = await stored(talk.window, after)
        assert (await losses(store, talk.rules, Rules(narrower)))[0] == found
        document, _ = await report(talk, Rules(narrower))
        assert [one["because"] for one in document["losses"]] == list(found.values())
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    assert talk.window.state.pins
    store = await stored(talk.window, under(NARROW, talk.log))
    assert (await losses(store, talk.rules, Rules(NARROW)))[0] == {KEY: LANE_CUT}


@pytest.mark.parametrize("lane", [100, 130, 400])
async def test_a_pinned_result_that_is_in_sight_is_lost_though_the_live_lane_would_cut_it_later(
    lane: int,
) -> None:
    policy = {**ROOMY, "pinned_max_tokens": 160}
    talk = Talk(policy)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="first " * 100, pinned=True)
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    talk.call("b")
    talk.say("tool.result", tool_call_id="b", content="second " * 40, pinned=True)
    talk.chat(1)
    [first] = talk.window.state.pins
    assert "second second" in talk.text() and first.tokens < 130
    other = {**policy, "pinned_max_tokens": lane}
    after = under(other, talk.log)
    kept = "first first" in render_openai(after).messages.decode()
    assert kept == (lane > first.tokens)
    store = await stored(talk.window, after)
    found = {} if kept else {KEY: LANE_CUT}
    assert (await losses(store, talk.rules, Rules(other)))[0] == found
    document, _ = await report(talk, Rules(other))
    assert [one["because"] for one in document["losses"]] == list(found.values())


async def test_a_tenant_whose_policy_is_unusable_on_one_side_is_compared() -> None:
    talk = Talk(ROOMY)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="code " * 100, pinned=True)
    talk.chat(1)
    store = await stored(talk.window, under(NARROW, talk.log))
    unusable = Rules(NARROW, {KEY.tenant: {"no_such_key": 1}})  # the deployment's holds then
    assert (await losses(store, talk.rules, unusable))[0] == {KEY: LANE_CUT}


def shortly(lane: int) -> dict[str, Any]:
    """A policy that leaves a call out before its late result comes, and may pin so much."""
    return {**SMALLER, "pinned_max_tokens": lane}


async def with_a_late_result(talk: Talk) -> str:
    """Pin a result that comes long after its call; returns why it is lost where the call is out."""
    talk.call("late")
    talk.chat(4)
    late = talk.say("tool.result", tool_call_id="late", content="late " * 60, pinned=True)
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    talk.chat(1)
    assert "late late" in talk.text()
    where = talk.window.position_of(late)
    return (
        f"the call of its pinned result at {where} had left the new window before the result came"
    )


@pytest.mark.parametrize("lane", [400, 1_000, 200])
async def test_a_pinned_result_whose_call_had_left_the_new_window_is_lost_and_no_limit_is_blamed(
    lane: int,
) -> None:
    talk = Talk(ROOMY)
    why = await with_a_late_result(talk)
    after = under(shortly(lane), talk.log)
    assert after.covered_to == talk.window.covered_to and after.state.pins_lost == (0, 0)
    store = await stored(talk.window, after)
    assert (await losses(store, talk.rules, Rules(shortly(lane))))[0] == {KEY: why}
    document, lines = await report(talk, Rules(shortly(lane)))
    assert [one["because"] for one in document["losses"]] == [why]
    assert any(line.endswith(why) for line in lines)


@pytest.mark.parametrize("known", [True, False], ids=["pins", "of a former release"])
async def test_a_sleeping_conversation_loses_pinned_results_like_one_that_is_awake(
    known: bool,
) -> None:
    talk = Talk(ROOMY)
    why = await with_a_late_result(talk)
    after = under(shortly(1_000), talk.log)
    store, awake = await stored(talk.window, after), await stored(talk.window, after)
    stub = await put_to_sleep(store)
    assert stub.pins
    if not known:
        await put_to_sleep(store, msgspec.structs.replace(stub, pins=None))
    store.reader = awake  # what wakes it
    assert (await losses(store, talk.rules, Rules(shortly(1_000))))[0] == {KEY: why}


async def test_a_sleeping_conversation_without_pinned_results_is_not_woken_to_be_compared() -> None:
    talk = await summarised(ROOMY)
    store = await stored(talk.window, under({**ROOMY, "min_messages": 5}, talk.log))
    stub = await put_to_sleep(store)
    assert stub.pins is False
    assert (await losses(store, talk.rules, Rules({**ROOMY, "min_messages": 5})))[0] == {}


@pytest.mark.parametrize(
    ("lane", "limited"), [(100, False), (60, True)], ids=["holds an older one", "holds none"]
)
async def test_where_the_new_lane_lost_pins_its_limit_is_blamed_unless_an_older_result_is_there(
    lane: int, limited: bool
) -> None:
    talk = Talk({**ROOMY, "pinned_max_tokens": 200})
    for name in ("first", "second"):  # the live lane has room for two results of three
        talk.call(name)
        talk.say("tool.result", tool_call_id=name, content="code " * 60, pinned=True)
    why = await with_a_late_result(talk)
    after = under(shortly(lane), talk.log)
    assert talk.window.state.pins_lost[0] == 1 and after.state.pins_lost[0] > 0
    store = await stored(talk.window, after)
    found, _ = await losses(store, talk.rules, Rules(shortly(lane)))
    assert found == {KEY: LANE_CUT if limited else why}


async def test_a_system_text_that_is_cut_before_there_is_a_summary_is_lost() -> None:
    talk = Talk(ROOMY)
    talk.say("message", role="system", content="rule " * 100)
    talk.chat(1)
    store = await stored(talk.window, under(NARROW, talk.log))
    assert await losses(store, talk.rules, Rules(NARROW)) == ({KEY: LANE_CUT}, 1)


@pytest.mark.parametrize(
    "after",
    [
        {**ROOMY, "pinned_max_tokens": 200},
        {**ROOMY, "pinned_max_tokens": 200, "cuts": "exact", "trim_tool_results": True},
        {**SMALLER, "pinned_max_tokens": 200},
    ],
    ids=["shorter", "exact", "smaller"],
)
async def test_a_shorter_lane_that_holds_all_loses_nothing(after: dict[str, Any]) -> None:
    talk = pinning(Talk(ROOMY))
    talk.chat(1)
    for _ in range(2):
        store = await stored(talk.window, under(after, talk.log))
        assert (await losses(store, talk.rules, Rules(after)))[0] == {}
        while talk.window.meta.due is None:
            talk.chat(1)
        await talk.summarise()
        talk.chat(1)
    store = await stored(talk.window, under(after, talk.log))
    assert (await losses(store, talk.rules, Rules(after)))[0] == {}


TIGHT = {**BOUNDED, "reserve_tokens": 200, "pinned_max_tokens": 60}


@pytest.mark.parametrize(
    "change",
    [
        {"reserve_tokens": 1_100},
        {"summary_max_tokens": 900},
        {"hard_ceiling": 0.05},
        {"allow": ["working_budget"]},
        {"maxima": {"pinned_max_tokens": 50}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_a_conversation_pins_by_a_policy_that_the_other_rules_bound_or_ignore_is_lost(
    change: dict[str, Any],
) -> None:
    talk = Talk(TIGHT)
    talk.say("conversation.opened", policy={"model_window": 1_000, "pinned_max_tokens": 250})
    for word in ("rule", "code"):
        talk.say("message", role="system", content=f"{word} " * 34)
    talk.chat(1)
    after = Rules({**TIGHT, **change})
    store = await stored(talk.window, under(after.deployment, talk.log))
    assert await losses(store, talk.rules, after) == ({KEY: LANE_CUT}, 1)


async def test_what_the_live_lane_has_cut_itself_is_not_lost_by_a_switch() -> None:
    talk = pinning(Talk(NARROW))
    talk.chat(2)
    for narrower in (NARROW, ROOMY):
        store = await stored(talk.window, under(narrower, talk.log))
        assert (await losses(store, talk.rules, Rules(narrower)))[0] == {}


async def test_what_changes_while_it_is_compared_is_not_taken_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    talk = Talk(ROOMY)
    begin = talk.say("message", role="user", content="word")
    talk.say("message", role="system", content="rule " * 100)
    store = await stored(talk.window, under(NARROW, talk.log))
    talk.say("rollback", to=talk.window.position_of(begin))
    behind = under(NARROW, talk.log)
    talk.say("message", role="system", content="other " * 40)

    async def catch_up() -> None:
        for number, window in ((2, behind), (1, talk.window)):
            now = await store.checkpoint(number, 0) or Checkpoint()
            done = replace(now, offset=window.meta.position, digest="d")
            await store.apply(number, 0, done, [write_of(window, NOTHING)])

    sides = Side(1, talk.rules), Side(2, Rules(NARROW))
    assert await find_losses(store, *sides, {0: 0}, catch_up) == {KEY: CHANGES}


async def test_a_window_that_cannot_be_read_hides_no_other_loss() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    store = await stored(talk.window, under(BOUNDED, talk.log[CUT:]))
    broken = Key(KEY.tenant, "broken")
    for number in (1, 2):
        now = await store.checkpoint(number, 0)
        assert now is not None
        write = write_of(talk.window, NOTHING)
        garbage = [(name, b"?") for name, _ in write.put]
        after = replace(now, offset=now.offset + 1)
        await store.apply(number, 0, after, [replace(write, key=broken, put=garbage)])
    found, _ = await losses(store, talk.rules, Rules(BOUNDED))
    assert found == {broken: UNREADABLE, KEY: GONE}


async def test_a_refused_summary_loses_nothing_while_all_its_messages_are_shown() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    whole = {**BOUNDED, "working_budget": 9_000}
    without = [item for item in talk.log if not isinstance(item[1], SummaryEvent)]
    verbatim, left_out = under(whole, without), under(SMALLER, without)
    before = past_of(talk.window)._replace(events=len(without))
    assert why_lost(before, verbatim) is None
    assert why_lost(before, left_out) == "its summaries are refused"


async def test_a_summary_that_came_while_the_windows_were_compared_is_not_lost() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    early = under(BOUNDED, [item for item in talk.log if item[0] < 5])
    store = await stored(talk.window, early)

    async def catch_up() -> None:
        checkpoint = await store.checkpoint(2, 0)
        assert checkpoint is not None
        window = under(BOUNDED, talk.log)
        now = replace(checkpoint, offset=window.meta.position)
        await store.apply(2, 0, now, [write_of(window, NOTHING)])

    sides = Side(1, talk.rules), Side(2, talk.rules)
    assert await find_losses(store, *sides, {0: 0}, catch_up) == {}


async def test_windows_ahead_of_a_rollback_that_is_being_restored_are_not_taken_for_lost() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    rollback = 4
    store, last = MemoryStore(), talk.window.meta.position
    live = Checkpoint("", rollback, 0, "d", ahead=last)
    await store.apply(1, 0, live, [write_of(talk.window, NOTHING)])
    before = await store.checkpoint(1, 0)
    assert before is not None and before.restoring
    rounds = 0

    async def catch_up() -> None:
        """Fold as a builder does, up to the live checkpoint, which moves on after some rounds."""
        nonlocal rounds
        rounds += 1
        to = last if rounds > 2 else rollback
        window = under(BOUNDED, [item for item in talk.log if item[0] <= to])
        now = await store.checkpoint(2, 0)
        revision = "" if now is None else now.revision
        await store.apply(2, 0, Checkpoint(revision, to, 0, "d"), [write_of(window, NOTHING)])

    sides = Side(1, talk.rules), Side(2, talk.rules)
    assert await find_losses(store, *sides, {0: 0}, catch_up) == {}
    assert rounds == 3


async def test_a_summary_that_a_rollback_undoes_meanwhile_is_not_lost() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    last = talk.window.meta.position
    short = under(SMALLER, talk.log[:4])
    # The live window does not know of the rollback yet: it is being restored.
    store = MemoryStore()
    before = Checkpoint("", last - 1, 0, "d", ahead=last)
    await store.apply(1, 0, before, [write_of(talk.window, NOTHING)])
    rounds = 0

    async def catch_up() -> None:
        nonlocal rounds
        rounds += 1
        for number in (2, 1) if rounds == 3 else (2,):
            now = await store.checkpoint(number, 0) or Checkpoint()
            done = replace(now, offset=last, digest="d", ahead=-1)
            await store.apply(number, 0, done, [write_of(short, NOTHING)])

    sides = Side(1, talk.rules), Side(2, Rules(SMALLER))
    assert await find_losses(store, *sides, {0: 0}, catch_up) == {}
    assert rounds == 3


async def test_a_summary_in_whose_place_another_one_comes_meanwhile_is_not_lost() -> None:
    talk = await summarised(BOUNDED, summaries=1)
    store = await stored(talk.window, under(SMALLER, talk.log[:4]))
    assert talk.window.meta.summary is not None
    talk.say("rollback", to=talk.window.position_of(talk.window.meta.summary.to - 1))
    undone = under(SMALLER, talk.log)
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    after = under(SMALLER, talk.log)
    assert (undone.meta.summary, after.meta.summary is None) == (None, False)
    windows = [(2, undone), (1, talk.window), (2, after)]

    async def catch_up() -> None:
        for number, window in windows[:2]:
            now = await store.checkpoint(number, 0) or Checkpoint()
            done = replace(now, offset=window.meta.position, digest="d")
            await store.apply(number, 0, done, [write_of(window, NOTHING)])
        del windows[:2]

    sides = Side(1, talk.rules), Side(2, Rules(SMALLER))
    assert await find_losses(store, *sides, {0: 0}, catch_up) == {}
    assert not windows


class NoTenants:
    """A control topic without tenants."""

    def learner(self, _rules: Rules) -> Callable[[str], Awaitable[None]]:
        async def learn(_tenant: str) -> None:
            pass

        return learn


async def report(talk: Talk, after: Rules) -> tuple[dict[str, Any], list[str]]:
    control: Any = NoTenants()
    preview = Preview(control, talk.messages, talk.rules, after)
    await preview.run()
    document = preview.document()
    return document, policy_report(document)


async def test_a_report_says_that_summaries_are_cut_and_messages_left_out_and_nothing_is_lost() -> (
    None
):
    talk = await summarised(BOUNDED)
    document, lines = await report(talk, Rules(SMALLER))
    assert document["losses"] == [] and "lost by a switch: nothing" in lines
    assert document["compactions"]["refused_after"] == 0
    assert document["summaries_cut"] == 1
    assert (
        document["left_out"]["messages"]["before"] == 0 < document["left_out"]["messages"]["after"]
    )
    assert any(line.startswith("summaries cut to summary_max_tokens: of 1 ") for line in lines)
    assert any(line.startswith("older messages that a line names: 0 -> ") for line in lines)


async def test_a_report_says_what_a_larger_budget_has_room_for() -> None:
    talk = await summarised(BOUNDED, summaries=3)
    document, lines = await report(talk, Rules({**BOUNDED, "working_budget": 1_800}))
    some = document["room"]
    assert some["conversations"] == 1 and 0 < some["tokens"] <= 1_800
    document, lines = await report(talk, Rules({**BOUNDED, "working_budget": 12_000}))
    room = document["room"]
    reach = talk.window.covered_to
    said = sum(at <= reach for at, event in talk.log if isinstance(event, MessageEvent))
    assert room["events"] == said > some["events"]
    assert any(
        line.startswith(f"room for more: in 1 conversations {said} summarised") for line in lines
    )
    document, _ = await report(talk, Rules(SMALLER))
    assert document["room"]["conversations"] == 0
    last = {"reducers": [{"name": "keep_last_n_messages", "n": 3}]}
    document, _ = await report(talk, Rules({**BOUNDED, "working_budget": 12_000, **last}))
    assert document["room"]["conversations"] == 0, "more would be left out at once"


async def test_room_counts_no_event_that_a_rollback_abandoned() -> None:
    talk = Talk(BOUNDED)
    stays = talk.chat(1)[0] + 1
    talk.chat(3)
    talk.say("rollback", to=talk.window.position_of(stays))
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    document, _ = await report(talk, Rules({**BOUNDED, "working_budget": 12_000}))
    reach = talk.window.covered_to
    said = {at for at, event in talk.log if isinstance(event, MessageEvent) and at <= reach}
    abandoned = {at for at in said if stays < at <= stays + 6}
    assert len(abandoned) == 6
    assert document["room"]["events"] == len(said - abandoned)


async def test_a_report_claims_nothing_of_losses_where_the_log_has_lost_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await summarised(BOUNDED)

    async def begins() -> dict[int, int]:
        return {0: 3}

    monkeypatch.setattr(talk.messages, "beginning_offsets", begins)
    document, lines = await report(talk, Rules(SMALLER))
    assert document["log_begins"] == {0: 3}
    assert "lost by a switch: nothing" not in lines
    assert any(
        line.startswith("lost by a switch: not known")
        and "partition 0 (begins at offset 3)" in line
        for line in lines
    )
