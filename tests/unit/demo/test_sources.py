"""The demo's material: deterministic, valid as events, and consistent in what it tells."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, pairwise

import pytest

from projections.errors import InvalidSettings
from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.apply import Status
from projections.fold.replay import Logged, apply_with_log
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.window.window import Window
from threadfold.demo.__main__ import parse, scripts_of
from threadfold.demo.agents import TOOLS, agent_events, agent_scripts
from threadfold.demo.openai_checker import problems
from threadfold.demo.parts import AGENT_POLICY, CHAT_POLICY
from threadfold.demo.sources import (
    GROUP,
    LONG_SESSION,
    PAIRS,
    Flat,
    Session,
    interleave,
    join_sessions,
    load_sessions,
)
from threadfold.demo.watch import recount

KEY = Key("agents", "desk-0000")


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    return load_sessions()


def checked(key: Key, flat: Flat) -> bytes:
    return make_record(
        key, flat, where=f"event {flat['id']}", now="no time of its own", new_id=""
    ).value


def test_the_dataset_is_whole_and_in_the_order_of_its_times(sessions: list[Session]) -> None:
    assert len(sessions) == 7_168
    assert sum(len(session.in_order) for session in sessions) == 258_145
    starts = [session.in_order[0].timestamp for session in sessions]
    assert starts == sorted(starts)


def test_joining_is_the_same_for_the_same_seed_and_another_for_another(
    sessions: list[Session],
) -> None:
    first, again, other = (
        list(join_sessions(sessions, 3, 4, seed)[1].events()) for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_playing_all_plays_every_message_once(sessions: list[Session]) -> None:
    said: Counter[tuple[str, str]] = Counter()
    for script in join_sessions(sessions, None, 12, 1):
        events = list(script.events())
        assert len(events) == script.length
        said.update(
            (e["time"], e["content"])
            for e in events
            if e["type"] == "message" and e["role"] != "system"
        )
    assert said == Counter((m.timestamp, m.text) for session in sessions for m in session.in_order)


def test_chats_are_valid_events_with_unique_ids_in_the_order_of_their_times(
    sessions: list[Session],
) -> None:
    for script in join_sessions(sessions, 2, 5, 1):
        events = list(script.events())
        for flat in events:
            checked(script.key, flat)
        assert len({e["id"] for e in events}) == len(events) == script.length
        times = [e["time"] for e in events if e["id"].endswith("-m0")]
        assert times == sorted(times)
        assert [e["type"] for e in events].count("session.closed") == 5
        roles = Counter(e.get("role") for e in events)
        if script.key.tenant == PAIRS:
            assert roles["user"] and roles["assistant"]
        else:
            assert script.key.tenant == GROUP
            assert len({e["name"] for e in events if "name" in e}) >= 2


def test_only_real_sessions_are_taken_unless_all_are(sessions: list[Session]) -> None:
    for script in join_sessions(sessions, 4, 3, 2):
        per_session = Counter(e["id"].partition("-")[0] for e in script.events() if "-m" in e["id"])
        assert min(per_session.values()) >= LONG_SESSION


def test_more_conversations_than_the_dataset_has_are_refused(sessions: list[Session]) -> None:
    with pytest.raises(InvalidSettings, match="1 to 204 conversations"):
        join_sessions(sessions, 205, 12, 1)


def test_interleaving_keeps_each_conversations_order_and_loses_nothing(
    sessions: list[Session],
) -> None:
    scripts = [*join_sessions(sessions, 3, 2, 1), *agent_scripts(2, 5, 1)]
    mixed = list(interleave(scripts, 9))
    assert mixed == list(interleave(scripts, 9))
    for script in scripts:
        assert [flat for key, flat in mixed if key == script.key] == list(script.events())
    changes = sum(a[0] != b[0] for a, b in pairwise(mixed))
    assert changes > len(mixed) / 10


def test_agents_are_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert list(agent_events(3, 20)) == list(agent_events(3, 20))
    assert list(agent_events(3, 20)) != list(agent_events(4, 20))


def test_agents_events_are_valid_with_unique_ids_and_rising_times() -> None:
    events = list(agent_events(1, 60))
    for flat in events:
        checked(KEY, flat)
    assert len({e["id"] for e in events}) == len(events)
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)


def test_agents_have_everything_that_is_hard_on_a_window() -> None:
    events = [e for seed in range(8) for e in agent_events(seed, 40)]
    calls = [call["id"] for e in events for call in e.get("tool_calls", ())]
    results = [e for e in events if e["type"] == "tool.result"]
    assert max(Counter(calls).values()) > 10, "call ids are used again"
    assert any(len(e.get("tool_calls", ())) > 1 for e in events), "calls come in parallel"
    assert any(len(e["content"]) > 8_000 for e in results), "some results are large"
    assert any(e.get("is_error") for e in results)
    assert {e["outcome"] for e in events if e["type"] == "resolution"} == {"approved", "rejected"}
    assert any(e["type"] == "rollback" for e in events)


@pytest.mark.parametrize("seed", range(6))
def test_every_call_is_answered_once_in_its_turn_and_every_suspension_resolved(seed: int) -> None:
    known = {tool["function"]["name"] for tool in TOOLS}
    requests: set[str] = set()
    open_calls: dict[str, str] = {}
    suspended: dict[str, str] = {}
    for event in agent_events(seed, 60):
        match event["type"]:
            case "message":
                if event["role"] == "user":
                    requests.add(event["id"])
                for call in event.get("tool_calls", ()):
                    assert call["name"] in known
                    assert isinstance(json.loads(call["arguments"]), dict)
                    assert call["id"] not in open_calls
                    open_calls[call["id"]] = call["name"]
            case "tool.result":
                assert open_calls.pop(event["tool_call_id"]) == event["name"]
            case "suspension":
                assert event["tool_call_id"] in open_calls
                suspended[event["suspension_id"]] = event["tool_call_id"]
            case "resolution":
                assert suspended.pop(event["suspension_id"]) in open_calls
            case "rollback":
                assert event["to"] in requests
            case "turn.ended":
                assert not open_calls
                assert not suspended


@pytest.mark.parametrize("tenant", ["agents", PAIRS, GROUP])
def test_windows_of_the_demos_events_render_validly_under_its_policies(
    sessions: list[Session], tenant: str
) -> None:
    scripts = [*join_sessions(sessions, 2, 6, 1), *agent_scripts(1, 40, 1)]
    script = next(script for script in scripts if script.key.tenant == tenant)
    window = Window(script.key, 0, Rules(CHAT_POLICY, {"agents": AGENT_POLICY}))
    log: list[Logged] = []
    for offset, flat in enumerate(islice(script.events(), 250)):
        event = decode_event(checked(script.key, flat))
        outcome = apply_with_log(window, offset, event, log)
        log.append((offset, event))
        assert outcome.status is Status.APPLIED, f"{flat}: {outcome.reason}"
        render = render_openai(window)
        messages = json.loads(render.messages)
        assert problems(messages) == []
        assert (
            recount(messages, "o200k_base") + window.state.tools_tokens
            <= render.tokens
            <= window.policy.ceiling
        )
    assert window.meta.due is not None, "the budget is small enough that a compaction is due"


def test_the_options_choose_what_is_played(sessions: list[Session]) -> None:
    small = scripts_of(parse(["--conversations", "8", "--seed", "3"]))
    assert Counter(script.key.tenant for script in small) == {PAIRS: 4, GROUP: 4, "agents": 2}
    everything = scripts_of(parse(["--all"]))
    assert sum(s.length for s in everything if s.key.tenant != "agents") > sum(
        len(session.in_order) for session in sessions
    )
    with pytest.raises(SystemExit, match="2"):
        parse(["--all", "--quick"])
