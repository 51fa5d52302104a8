"""The forms of shortened messages: what each looks like, and that each is made again, the same,
from the event in the log.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest

from projections.events import types as events
from projections.events.token_cost import measured
from projections.fold.rehydration import refill
from projections.policy.policy import Rules
from projections.reducers.variants import Variants, soft_trimmed
from projections.storage.snapshots import take_snapshot
from projections.window.bodies import message_body, result_body
from projections.window.entry import AT_ONCE, Entry, Kind, Variant, reducer_of
from tests.support.histories import KEY, PARTITION, RULES, make_event
from tests.support.restored_windows import restore, snapshot_offsets
from tests.support.stories import Story

LONG = "0123456789" * 100


def upper(tool: str, call_id: str, text: str) -> str:
    return f"{tool} {call_id} {text[:4].upper()}"


def broken(tool: str, call_id: str, text: str) -> str:
    raise ValueError(f"cannot read {tool}")


def numeric(tool: str, call_id: str, text: str) -> str:
    return 7  # type: ignore[return-value]


def quits(tool: str, call_id: str, text: str) -> str:
    raise SystemExit(3)


CALLABLES = {
    "upper": upper,
    "broken": broken,
    "numeric": numeric,
    "quits": quits,
    "empty": lambda tool, call_id, text: "",
}


def variants() -> Variants:
    return Variants(lambda offset: f"3-{offset}", "o200k_base", CALLABLES)


def shaped(
    form: str, text: str = LONG, tool: str = "look", name: str | None = None
) -> dict[str, Any]:
    body = result_body(events.ToolResult("c1", text, name=name))
    made: dict[str, Any] = json.loads(variants().make(body, form, Entry(9, Kind.RESULT), tool)[0])
    assert (made["role"], made["tool_call_id"]) == ("tool", "c1")
    return made


def test_soft_keeps_head_and_tail_and_says_what_is_missing_and_where() -> None:
    lines = shaped("soft:30")["content"].split("\n")
    assert (lines[0], lines[2]) == (LONG[:20], LONG[-10:])
    assert lines[1] == "[… 970 of 1000 characters left out: the whole stands at position 3-9 …]"


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 4])
def test_soft_keeps_as_many_characters_as_it_says_however_few(keep: int) -> None:
    made = soft_trimmed("abcdefgh", keep, 8, "3-9")
    assert made.startswith("abcdefgh"[: keep - keep // 3] + "\n")
    assert made.endswith("…]" if keep < 3 else "\nh")
    assert soft_trimmed("abc", 3, 3, "3-9") == "abc"


def test_clear_says_how_long_it_was_and_where() -> None:
    assert (
        shaped("clear")["content"]
        == "[1000 characters of a tool result are left out here: they stand at position 3-9]"
    )


def test_a_template_is_filled_in_one_pass_and_other_braces_stay() -> None:
    assert (
        shaped("text:{tool_name}/{call_id}/{result_length} {x} {", tool="{call_id}")["content"]
        == "{call_id}/c1/1000 {x} {"
    )
    assert shaped("text:{tool_name}", tool="")["content"] == "tool", "a word where nobody knows"
    assert shaped("text:{tool_name}", tool="look", name="spoken")["content"] == "spoken", (
        "the result's own word goes first"
    )
    assert shaped("text:")["content"] == ""


def test_a_callable_gets_tool_id_and_text() -> None:
    assert shaped("call:upper", "abcdef")["content"] == "look c1 ABCD"


@pytest.mark.parametrize("name", ["broken", "numeric", "empty", "nobody", "quits"])
def test_a_callable_that_fails_or_is_not_there_gives_the_default_template(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert shaped(f"call:{name}")["content"] == "[look c1: 1000 characters]"
    assert ("cannot read look" in caplog.text) == (name == "broken")


def test_head_keeps_the_items_of_a_list_and_the_whole_of_anything_else() -> None:
    assert (
        shaped("head:1", "[1, 2, 3]")["content"]
        == "[1]\n[the first 1 of 3 items: the whole stands at position 3-9]"
    )
    assert shaped("head:1", "words")["content"] == "words"


def test_only_and_pair_keep_the_calls_they_name() -> None:
    calls = [events.ToolCall(id_, "look", "{}") for id_ in "abc"]
    body = message_body(events.Message("assistant", "I look", tool_calls=calls))

    entry = Entry(9, Kind.ASSISTANT, calls=tuple((id_, "look", b"") for id_ in "abc"))

    def made(*chain: str) -> tuple[Any, list[str]]:
        whole, before = body, tuple[Variant, ...]()
        for form in chain:
            whole, _ = variants().make(whole, form, entry, "", before)
            before = (*before, (20, form, 5))
        message = json.loads(whole)
        return message["content"], [call["id"] for call in message.get("tool_calls", [])]

    assert made("only:0,2") == ("I look", ["a", "c"])
    assert made("only:") == ("I look", [])
    assert made("pair:1:leave_out_oldest") == (None, ["b"])
    assert made("only:0,2", "pair:2:leave_out_oldest") == (
        None,
        ["c"],
    ), "indexes are those of the whole message"
    assert made("only:1", "only:") == ("I look", [])
    left, _ = variants().make(body, "out:leave_out_oldest", Entry(9, Kind.ASSISTANT))
    assert left == b""


def test_the_first_length_stays_through_later_forms() -> None:
    entry = Entry(9, Kind.RESULT)
    whole = result_body(events.ToolResult("c1", LONG))
    body, chars = variants().make(whole, "soft:30", entry, "look")
    assert chars == 1000
    entry.shorten(20, "soft:30", body, 5, chars)
    cleared, _ = variants().make(body, "clear", entry, "look", entry.variants)
    assert "1000 characters" in json.loads(cleared)["content"]
    assert entry.chars == 1000


def test_parts_are_joined_to_one_text() -> None:
    content = [
        events.TextPart("ab"),
        events.ImagePart(events.ImageUrl("data:x")),
        events.TextPart("cd"),
    ]
    body = result_body(events.ToolResult("c1", content))
    assert (
        json.loads(variants().make(body, "call:upper", Entry(9, Kind.RESULT), "look")[0])["content"]
        == "look c1 AB\n["
    )


@pytest.mark.parametrize(
    "data",
    [
        events.ToolResult("c1", LONG),
        events.ToolResult("c1", "", name="look"),
        events.Message("assistant", "I look", tool_calls=[events.ToolCall("a", "look", '{"n":1}')]),
        events.Message(
            "assistant",
            None,
            tool_calls=[events.ToolCall("a", "look", '{"n":1}'), events.ToolCall("b", "x", "")],
        ),
    ],
)
def test_tokens_of_a_body_are_what_its_event_costs(
    data: events.Message | events.ToolResult,
) -> None:
    body = result_body(data) if isinstance(data, events.ToolResult) else message_body(data)
    assert variants().tokens(body) == measured(data, "o200k_base").count
    assert variants().tokens(b"") == 0


@pytest.mark.parametrize(
    ("form", "reducer"),
    [
        ("spill", "spill"),
        ("soft:9", "soft_trim"),
        ("clear", "hard_clear"),
        ("text:x:y", "compact_tool_results"),
        ("call:f", "compact_tool_results"),
        ("only:", "compact_tool_results"),
        ("head:3", "summarize_tool_results"),
        ("pair:0,1:leave_out_oldest", "leave_out_oldest"),
        ("out:session_closed", "session_closed"),
    ],
)
def test_every_form_is_of_a_reducer(form: str, reducer: str) -> None:
    assert reducer_of(form) == reducer


# -- made again from the log
# ------------------------------------------------------------------------------------------

CHAINS = [
    ("soft:300",),
    ("clear",),
    ("text:{tool_name} {call_id} {result_length}",),
    ("call:upper",),
    ("call:broken",),
    ("head:2",),
    ("soft:300", "clear"),
    ("soft:300", "call:upper"),
    ("head:2", "soft:100", "text:[{result_length}]"),
]


@pytest.mark.parametrize(
    "text", [LONG, json.dumps([{"n": i, "text": "é" * 20} for i in range(40)])]
)
@pytest.mark.parametrize("forms", CHAINS)
@pytest.mark.parametrize("room", [0, 250])
def test_a_chain_of_forms_is_made_again_from_the_event(
    text: str, forms: tuple[str, ...], room: int
) -> None:
    event = make_event(events.ToolResult("c1", text), "e")
    assert isinstance(event, events.ToolResultEvent)
    entry = Entry(9, Kind.RESULT, 10**6, result_body(event.data), link=(8, 0))
    for at, form in [
        *([(AT_ONCE, f"clip:{room}")] if room else []),
        *((20, form) for form in forms),
    ]:
        body, chars = variants().make(entry.body, form, entry, "look")
        entry.shorten(at, form, body, 5, chars)
    again = Entry(9, Kind.RESULT, 10**6, link=(8, 0), variants=entry.variants, chars=entry.chars)
    refill(again, event, variants(), {(8, 0): "look"})
    assert again.body == entry.body


def test_what_was_cut_at_once_was_cut_before_it_was_clipped() -> None:
    event = make_event(events.ToolResult("c1", LONG * 10), "e")
    first = ((AT_ONCE, "soft:900", 300), (AT_ONCE, "clip:400", 200))
    entry = Entry(9, Kind.RESULT, 300, variants=(*first, (20, "text:{result_length}", 4)))
    refill(entry, event, variants(), {(8, 0): "look"})
    assert json.loads(entry.body)["content"] == "10000"
    entry.variants, entry.chars = first, 0
    refill(entry, event, variants(), {(8, 0): "look"})
    text = json.loads(entry.body)["content"]
    assert (
        text.startswith("012345")
        and text.endswith("6789")
        and len(text) < 400
        and "shortened" in text
    )


def test_an_event_of_another_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        refill(Entry(9, Kind.RESULT), make_event(None, "e"), variants(), {})


TALES: dict[str, dict[str, Any]] = {
    "trimmed": {"soft_trim_chars": 200, "hard_clear_chars": 900, "protect_recent": 1},
    "template": {"reducers": [{"name": "compact_tool_results", "keep_last_n": 1}]},
    "callable": {"reducers": [{"name": "compact_tool_results", "replacement": "callable:upper"}]},
    "dropped": {
        "reducers": [{"name": "compact_tool_results", "replacement": None, "keep_last_n": 1}]
    },
    "heads": {
        "trim_tool_results": False,
        "reducers": [{"name": "summarize_tool_results", "top": 2}],
    },
    "counted": {"reducers": [{"name": "keep_last_n_messages", "n": 8}]},
    "spilled": {"spill_chars": 500, "soft_trim_chars": 200},
    "several": {
        "spill_chars": 700,
        "soft_trim_chars": 300,
        "reducers": [
            {"name": "summarize_tool_results", "top": 1},
            {"name": "compact_tool_results", "keep_last_n": 2},
        ],
    },
}


@pytest.mark.parametrize("tale", TALES)
def test_a_window_with_shortened_entries_comes_back_from_its_snapshot_byte_for_byte(
    tale: str,
) -> None:
    rules = Rules(
        {
            **RULES.deployment,
            "working_budget": 1_000,
            "model_window": 6_000,
            "compaction": False,
            **TALES[tale],
        },
        callables=CALLABLES,
    )
    story = Story(rules=rules)
    seen: set[str] = set()
    for i in range(16):
        story.user(f"question {i}")
        story.call("a", "b", text=None if i % 2 else "I look")
        story.result(
            "b", json.dumps([{"row": n, "i": i} for n in range(20 + 5 * i)]), pinned=i == 3
        )
        story.result("a", f"{i} " + LONG[: 80 * i])
        story.assistant(f"answer {i}")
        story.assert_replays()
        window = story.window
        seen |= {form.split(":")[0] for entry in window.tail for _, form, _ in entry.variants}
        snapshot, log = take_snapshot(window), dict(story.talks.logs[KEY])
        again = restore(
            KEY, PARTITION, rules, snapshot, {at: log[at] for at in snapshot_offsets(snapshot)}
        )
        assert again.image() == window.image()
        assert (
            again.state == window.state
            and again.tail_tokens == window.tail_tokens
            and again.gains == window.gains
        )
    assert {
        "trimmed": {"soft", "clear"},
        "template": {"text"},
        "callable": {"call"},
        "dropped": {"only", "out"},
        "heads": {"head"},
        "counted": {"out", "pair"},
        "spilled": {"soft"},
        "several": {"soft", "text", "head"},
    }[tale] <= seen, seen


def test_a_template_is_filled_in_in_proportion_to_its_length() -> None:
    """Letter by letter, a thousand of them took a millisecond for each result and reducer."""
    body = b'{"role":"tool","tool_call_id":"c7","content":"r"}'
    form, entry = "text:" + "word " * 190 + "{call_id}{x}", Entry(9, Kind.RESULT)
    before = time.perf_counter()
    made = [variants().make(body, form, entry, "look")[0] for _ in range(3_000)]
    assert time.perf_counter() - before < 1.5
    assert json.loads(made[0])["content"].endswith("word c7{x}")
