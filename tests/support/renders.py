"""What every render has to be, checked from outside: valid for its provider, within its limit,
explained, of what is in force.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from projections.formats.anthropic import anthropic_document
from projections.formats.events import window_events
from projections.render.fit_to_limit import DoesNotFit
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.window.entry import Kind
from projections.window.window import Window
from tests.support import anthropic_checker, neutral_checker
from tests.support.sayings import tokens
from threadfold.demo import openai_checker

IMAGE = {"low": 85, "auto": 765, "high": 1105}
FILE = 1_500
FRAME, CALL = 4, 8
LEAST = 700
"""Tokens beside the system lane in which the newest group fits however large it is: a limit that
leaves less may be refused.
"""


def counted(message: dict[str, Any]) -> int:
    """Tokens of one message, after OpenAI's cookbook: its texts, its frame, its calls; images and
    files by kind.
    """
    total = FRAME + (tokens(message["name"]) if message.get("name") else 0)
    content = message.get("content")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        if part["type"] == "text":
            total += tokens(part["text"])
        else:
            total += (
                FILE if part["type"] == "file" else IMAGE[part["image_url"].get("detail") or "auto"]
            )
    for call in message.get("tool_calls") or ():
        total += CALL + tokens(call["function"]["name"]) + tokens(call["function"]["arguments"])
    return total


def checked(
    window: Window, max_tokens: int | None = None, known_ids: set[str] | None = None
) -> Render | None:
    """The render of a window, found valid in every format and within its limit; None where it was
    refused with reason.
    """
    limit = window.policy.ceiling if max_tokens is None else min(max_tokens, window.policy.ceiling)
    try:
        render = render_openai(window, max_tokens)
    except DoesNotFit as error:
        assert limit - window.state.pinned_tokens - window.summary_tokens < room_of_newest(
            window
        ), f"refused without need: {error}"
        return None
    messages = msgspec.json.decode(render.messages)
    none("openai", openai_checker.problems(messages))
    own = sum(map(counted, messages)) + window.state.tools_tokens
    assert own <= limit, (
        f"{own} tokens by an independent count, {render.tokens} by the render's own, where {limit}"
        " is the limit"
    )
    assert own <= render.tokens, (
        f"the render says {render.tokens} tokens, an independent count {own}"
    )
    document = json.loads(anthropic_document(window, render))
    if document["messages"]:  # before anybody spoke there is nothing to ask a model
        none("anthropic", anthropic_checker.problems(document.get("system"), document["messages"]))
    none("neutral", neutral_checker.problems(window_events(window), known_ids))
    check_trace(render)
    return render


def none(fmt: str, faults: list[str]) -> None:
    """That a checker found no fault."""
    assert not faults, f"{fmt}: {faults[:5]}"


def room_of_newest(window: Window) -> int:
    """Tokens that the newest group takes when each of its messages is shortened to what a note
    takes.
    """
    group = 1
    for entry in reversed(window.tail):
        if entry.body and entry.calls:
            group = 1 + len(entry.calls)
            break
    return LEAST + 200 * group


def check_trace(render: Render) -> None:
    """The steps of a trace chain, and end at what the render is."""
    for before, after in zip(render.trace, render.trace[1:], strict=False):
        assert (before.messages_after, before.tokens_after) == (
            after.messages_before,
            after.tokens_before,
        ), render.trace
    if render.trace:
        assert (render.trace[-1].messages_after, render.trace[-1].tokens_after) == (
            len(render.bodies),
            render.tokens,
        ), render.trace


def said(messages: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Texts by who said them, as often as they stand there; system texts, parts and empty ones left
    out.
    """
    found: Counter[tuple[str, str]] = Counter()
    for message in messages:
        role, content = message["role"], message.get("content")
        if role not in ("system", "developer") and isinstance(content, str) and content.strip():
            found[role, content] += 1
    return found


def system_texts(messages: list[dict[str, Any]]) -> Counter[str]:
    """What the system lane says."""
    return Counter(
        str(m.get("content"))
        for m in messages
        if m.get("role") in ("system", "developer") and m.get("content")
    )


def said_in_force(
    window: Window, in_force: list[tuple[int, dict[str, Any]]]
) -> Counter[tuple[str, str]]:
    """What a render of everything after the summary would say: of the events in force, by
    :func:`said`.
    """
    after = -1 if window.meta.summary is None else window.meta.summary.to
    roles = {"tool.result": "tool"}
    messages = [
        {"role": roles.get(f["type"], f.get("role")), "content": f.get("content")}
        for offset, f in in_force
        if offset > after
    ]
    return said([message for message in messages if message["role"]])


def waiting_calls(in_force: list[tuple[int, dict[str, Any]]]) -> list[list[str]]:
    """The ids of the calls of each message of which one is suspended and has no result, by the
    events in force alone.

    Only what is beyond doubt: the suspension is of a call that was alive then (nobody had spoken,
    no turn had ended since), its id was not answered before it was called, and it has not been
    answered since.
    """
    early: set[str] = set()
    alive: dict[str, list[str]] = {}
    suspended: dict[str, tuple[str, list[str]]] = {}
    for _, flat in in_force:
        kind = flat["type"]
        if flat.get("tool_calls"):
            ids = [call["id"] for call in flat["tool_calls"]]
            alive.update((id_, ids) for id_ in ids if id_ not in early and id_ not in alive)
        elif kind == "turn.ended" or flat.get("role") == "user":
            alive.clear()
        elif kind == "tool.result":
            early.add(flat["tool_call_id"])
            alive.pop(flat["tool_call_id"], None)
            suspended = {
                name: (id_, ids)
                for name, (id_, ids) in suspended.items()
                if id_ != flat["tool_call_id"]
            }
        elif kind == "suspension" and flat.get("tool_call_id") in alive:
            suspended[flat["suspension_id"]] = (flat["tool_call_id"], alive[flat["tool_call_id"]])
        elif kind == "resolution":
            suspended.pop(flat["suspension_id"], None)
    return [ids for _, ids in suspended.values()]


def check_kept(window: Window, render: Render, in_force: list[tuple[int, dict[str, Any]]]) -> None:
    """What goes last is there: calls that somebody is asked about, and the user's message where
    nobody has spoken since.

    The latter not where the policy asks for a window of no messages, nor behind the end of a
    session, which may empty the tail.
    """
    messages = json.loads(render.messages)
    there = [[call["id"] for call in message.get("tool_calls") or ()] for message in messages]
    heads = {entry.offset for entry in window.tail if entry.calls}
    for ids in (
        waiting_calls(in_force)
        if all(link[0] in heads for link in window.state.suspended())
        else []
    ):
        assert ids in there, f"the suspended calls {ids} are not in the render"
    spoken = [
        f
        for _, f in in_force
        if f["type"] in ("tool.result", "session.closed") or f.get("role") in ("user", "assistant")
    ]
    keeps_none = any(getattr(reducer, "n", None) == 0 for reducer in window.policy.reducers)
    if (
        spoken
        and spoken[-1].get("role") == "user"
        and not keeps_none
        and not _cut_by_what_was_dropped(window)
    ):
        others = [
            message["role"]
            for message in messages
            if message["role"] not in ("system", "developer")
        ]
        assert others and others[-1] == "user", "the newest user message is not in the render"


def _cut_by_what_was_dropped(window: Window) -> bool:
    """Whether the last cut was made by a message that an operator took out since: what it left out
    stays out.
    """
    dropped = {entry.offset for entry in window.tail if entry.kind == Kind.NOTE}
    users = [entry for entry in window.tail if entry.kind == Kind.USER]
    return bool(users) and users[-1].out and users[-1].variants[-1][0] in dropped


def check_reasoning(window: Window, render: Render, signatures: set[str]) -> None:
    """Only Anthropic's own reasoning goes to Anthropic; ``signatures`` are those it made."""
    for message in json.loads(anthropic_document(window, render))["messages"]:
        for block in message["content"]:
            if block["type"] == "thinking":
                assert block["signature"] in signatures, (
                    f"a signature of another provider: {block['signature']}"
                )


def check_explained(
    window: Window, render: Render, in_force: list[tuple[int, dict[str, Any]]]
) -> None:
    """Whatever is in force and not in the render as it was said is explained by a trace; and
    nothing else is in it, but in a summary.
    """
    rendered = json.loads(render.messages)
    if rendered and render.offsets[-1] < 0 and rendered[-1]["role"] == "user":
        # The message that closes a render after a late result.
        rendered.pop()
    wanted, there = said_in_force(window, in_force), said(rendered)
    missing = wanted - there
    assert not missing or render.trace, (
        f"left out or shortened without a trace: {str(missing)[:300]}"
    )
    lane = system_texts([flat for _, flat in in_force if flat["type"] == "message"]) - system_texts(
        json.loads(render.messages)
    )
    assert not lane or render.trace, (
        f"system text left out or cut without a trace: {str(lane)[:300]}"
    )
    if not render.trace:
        users = {key: n for key, n in (there - wanted).items() if key[0] in ("user", "tool")}
        assert not users or _from_before(window, users, in_force), (
            f"said by nobody in force: {str(users)[:300]}"
        )


def _from_before(
    window: Window, found: dict[tuple[str, str], int], in_force: list[tuple[int, dict[str, Any]]]
) -> bool:
    """Whether texts stand in force before the summary's end: what a compaction went around."""
    return window.meta.summary is not None and {text for _, text in found} <= {
        str(flat.get("content")) for _, flat in in_force
    }
