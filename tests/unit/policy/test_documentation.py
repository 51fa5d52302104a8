"""``docs/policy.md`` says what the code has: keys, profiles and reducers with their defaults, names
of steps, what examples give.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from projections.policy.policy import ALLOW, MAXIMA, Policy, make_policy
from projections.policy.profiles import (
    DEFAULT_TEMPLATE,
    MAX_TEMPLATE,
    PROFILES,
    CompactResults,
    KeepMessages,
    KeepTurns,
    Reducer,
    Summarize,
    SummarizeResults,
)
from projections.render.fit_to_limit import STEPS
from projections.window.entry import reducer_of
from projections.window.trace_steps import ORDER
from tests.support.agent_run import Run, render_openai

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "policy.md").read_text()
REDUCERS = (KeepTurns, KeepMessages, CompactResults, SummarizeResults, Summarize)


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its head first."""
    lines = text.partition(f"\n{heading}\n")[2].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return [rows[0], *rows[2:]]


def value(cell: str) -> Any:
    """The JSON value in a cell's backticks."""
    found = re.fullmatch(r"(\*\*)?`(.*)`(\*\*)?", cell)
    assert found, f"no value: {cell}"
    return json.loads(found[2])


def plain(policy: Policy) -> dict[str, Any]:
    """A policy's values as JSON has them."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
    return found


def same(ours: Any, written: Any) -> bool:
    """Whether a written value is ours, and of its type (1 is no ``true``)."""
    return json.dumps(ours) == json.dumps(written)


def faults(text: str) -> list[str]:
    """What the tables of keys, profiles and reducers say otherwise than the code."""
    return [*key_faults(text), *profile_faults(text), *reducer_faults(text)]


def key_faults(text: str) -> list[str]:
    rows = {name.strip("`"): value(default) for name, default, _ in table(text, "## Keys")[1:]}
    ours = plain(Policy())
    found = [f"key {name}: no such key" for name in rows.keys() - ours.keys()]
    found += [f"key {name}: missing" for name in ours.keys() - rows.keys()]
    return found + [
        f"key {name}: {rows[name]!r}"
        for name in ours.keys() & rows.keys()
        if not same(ours[name], rows[name])
    ]


def profile_faults(text: str) -> list[str]:
    head, *rows = table(text, "## Profiles")
    found = [] if head[1:] == list(PROFILES) else [f"profiles: {head[1:]}"]
    defaults = plain(Policy())
    if [row[0].strip("`") for row in rows] != list(defaults):
        found.append("profiles: other keys, or in another order")
    for i, profile in enumerate(PROFILES, 1):
        # What the profile sets, written as it may be written in a policy.
        ours = {**defaults, "profile": profile, **PROFILES[profile]}
        assert make_policy({"profile": profile}) == make_policy(ours), (
            "a profile is nothing but its values"
        )
        for row in rows:
            name, cell = row[0].strip("`"), row[i]
            if name in ours and not same(ours[name], value(cell)):
                found.append(f"profile {profile}: {name} is {cell}")
            if name in ours and cell.startswith("**") != (ours[name] != defaults[name]):
                found.append(f"profile {profile}: {name} is bold or not, the wrong way round")
    return found


def reducer_faults(text: str) -> list[str]:
    rows = {
        (name.strip("`"), field.strip("`")): default
        for name, field, default, _ in table(text, "## Reducers")[1:]
    }
    ours: dict[tuple[str, str], str] = {}
    for kind in REDUCERS:
        name = str(kind.__struct_config__.tag)
        fields = msgspec.structs.fields(kind)
        ours |= {
            (name, f.name): "required" if f.required else f"`{json.dumps(f.default)}`"
            for f in fields
        }
        if not fields:
            ours[name, ""] = ""
    found = [f"reducer {key}: no such field" for key in rows.keys() - ours.keys()]
    found += [f"reducer {key}: missing" for key in ours.keys() - rows.keys()]
    return found + [
        f"reducer {key}: {rows[key]}" for key in ours.keys() & rows.keys() if rows[key] != ours[key]
    ]


def test_every_key_profile_and_reducer_stands_in_the_docs_with_its_default() -> None:
    assert set(REDUCERS) == set(Reducer.__args__)
    assert faults(TEXT) == []


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        ("| `low_water` | `0.5` | a cut", "| `low_water` | `0.6` | a cut", "key low_water: 0.6"),
        ("| `renders` | `true` | whether", "| `renders` | `1` | whether", "key renders: 1"),
        (
            "| `loop_guard` | `3` | this many",
            "| `loop_gaurd` | `3` | this many",
            "key loop_guard: missing",
        ),
        ("**`0.7`**", "**`0.71`**", "profile pruning: compaction_ratio"),
        ("**`1800`**", "`1800`", "profile sliding: idle_close_seconds is bold or not"),
        (
            "| `summarize_tool_results` | `top` | `5`",
            "| `summarize_tool_results` | `top` | `6`",
            "reducer ('summarize_tool_results', 'top')",
        ),
        (
            "| `keep_last_n_turns` | `n` | required",
            "| `keep_last_n_turns` | `m` | required",
            "reducer ('keep_last_n_turns', 'n'): missing",
        ),
    ],
)
def test_a_default_that_is_another_in_the_docs_is_found(was: str, now: str, named: str) -> None:
    assert TEXT.count(was) == 1
    assert any(fault.startswith(named) for fault in faults(TEXT.replace(was, now)))


def test_what_a_deployment_sets_and_what_traces_and_spans_say_is_named() -> None:
    forms = ("spill", "soft:1", "clear", "head:1", "text:x", "call:x", "only:0")
    names = {
        *ORDER,
        *(name for name, _ in STEPS),
        *map(reducer_of, forms),
        "pairing",
        "trim_tool_results",
        ALLOW,
        MAXIMA,
    }
    assert [name for name in sorted(names) if f"`{name}`" not in TEXT] == []
    spans = (ROOT / "streams" / "projector" / "tracing.py").read_text()
    attributes = re.findall(r'"(threadfold\.\w+|utilization|steps)":', spans)
    assert len(attributes) == 5
    assert [name for name in attributes if f"`{name}`" not in TEXT] == []
    assert f"{MAX_TEMPLATE:,} characters" in TEXT and f'`"{DEFAULT_TEMPLATE}"`' in TEXT


def test_the_budgets_that_follow_from_the_defaults_are_those_of_the_docs() -> None:
    policy = Policy()
    assert f"at most {policy.ceiling:,} tokens" in TEXT
    assert f"(by default {policy.keep_recent(0):,}: half of the budget)" in TEXT


ROWS = json.dumps(
    [{"id": 17, "kilos": 4}, {"id": 23, "kilos": 9}, {"id": 31, "kilos": 2}, {"id": 40, "kilos": 7}]
)


def talk(result: str) -> list[dict[str, Any]]:
    """The conversation of the docs' examples."""
    call = {"id": "call_0", "name": "find_parcels", "arguments": "{}"}
    return [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "Which parcels are here?"},
        {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]},
        {
            "type": "tool.result",
            "tool_call_id": "call_0",
            "name": "find_parcels",
            "content": result,
        },
        {"type": "message", "role": "assistant", "content": "Four."},
        {"type": "message", "role": "user", "content": "And tomorrow?"},
        {"type": "message", "role": "assistant", "content": "Two more."},
    ]


def shown(policy: dict[str, Any], result: str = ROWS) -> list[str]:
    """The contents behind the system prompt, reduced on the render."""

    async def told() -> list[str]:
        run = Run({"profile": "composed", "cuts": "exact", **policy})
        for flat in talk(result):
            await run.say(flat)
        return [json.loads(body)["content"] for body in render_openai(run.window).bodies[1:]]

    return asyncio.run(told())


EXAMPLES = [row for row in table(TEXT, "### Examples")[1:] if row[0].startswith("`{")]


@pytest.mark.parametrize(("reducer", "after"), EXAMPLES)
def test_an_example_of_a_reducer_gives_what_the_docs_say(reducer: str, after: str) -> None:
    assert ROWS in TEXT
    said = shown({"reducers": [value(reducer)]})
    whole = shown({})
    assert said != whole
    texts = re.findall(r"`([^`]+)`", after)
    if texts:
        changed = [line for line in said if line not in whole] or [*said]
        assert "\n".join(texts) == "\n".join(
            line for text in changed if text for line in text.splitlines()
        )
    else:
        assert said == [line for line in whole if line is not None and line != ROWS]


def test_there_is_an_example_of_every_reducer_and_of_trimming() -> None:
    named = {value(row[0])["name"] for row in EXAMPLES}
    assert named == {str(kind.__struct_config__.tag) for kind in REDUCERS} - {"summarize"}
    trims = {
        "trim_tool_results": True,
        "protect_recent": 0,
        "soft_trim_chars": 60,
        "hard_clear_chars": 1_000,
    }
    soft, hard = shown(trims, "abcdefghij" * 20)[2], shown(trims, "abcdefghij" * 200)[2]
    assert f"`{soft.splitlines()[1]}`" in TEXT and f"`{hard}`" in TEXT
