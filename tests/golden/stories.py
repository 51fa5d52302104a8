"""What the golden log says: every event type with every field, in a few conversations. Made up;
nobody else's text.

``@ID`` in a field stands for the position of the event of that id.
"""

from __future__ import annotations

from typing import Any

from projections.memory.identity import Scope, memory_id, normalize
from projections.names import users_log

Said = tuple[str, dict[str, Any]]
"""A conversation, and an event as it is appended."""

_PNG = "data:image/png;base64,iVBORw0KGgo="
_FUNCTION = {
    "name": "timetable",
    "description": "Trains of a day",
    "parameters": {
        "type": "object",
        "properties": {"from": {"type": "string"}, "day": {"type": "string"}},
    },
}


def _user(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text, **more}


def _model(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, **more}


def _call(*calls: tuple[str, str, str], text: str | None = None, **more: Any) -> dict[str, Any]:
    made = [{"id": id_, "name": name, "arguments": arguments} for id_, name, arguments in calls]
    return {"type": "message", "role": "assistant", "content": text, "tool_calls": made, **more}


def _result(id_: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool.result", "tool_call_id": id_, "content": content, **more}


STATION: list[dict[str, Any]] = [
    {
        "type": "conversation.opened",
        "policy": {"min_messages": 4, "protect_recent": 2},
        "channel": "web",
        "user": "u-17",
        "tools": [{"type": "function", "function": _FUNCTION}],
        "metadata": {"seat": 12, "tags": ["früh", "☕"], "deep": {"n": [1, 2.5, None, True]}},
    },
    {"type": "message", "role": "system", "content": "You answer questions about trains."},
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "text", "text": "Times are local."}],
        "name": "desk",
    },
    _user(
        "When does the first train to Lüneburg leave?",
        name="ada",
        id="ask",
        time="2026-01-31T05:59:59.123+01:00",
    ),
    _call(
        ("t1", "timetable", '{"from":"Hamburg","day":"2026-02-01"}'),
        text="Let me look.",
        model="model-a",
        status="complete",
    ),
    _result("t1", '[{"leaves":"05:12"},{"leaves":"05:57"}]', name="timetable"),
    _model(
        "At 05:12.",
        model="model-a",
        usage={"prompt_tokens": 310, "completion_tokens": 6, "total_tokens": 316},
    ),
    _user("", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    _user("And the last one? 最終列車は? 🚆"),
    _model("I am not", status="interrupted", usage={"input_tokens": 330, "output_tokens": 3}),
    _call(("t1", "timetable", "{}"), ("t2", "timetable", "not json")),
    _result("t2", None, is_error=True),
    _result(
        "t1",
        [{"type": "text", "text": "23:41"}, {"type": "text", "text": " from platform 13"}],
        pinned=True,
    ),
    _model(
        [
            {"type": "text", "text": "At 23:41."},
            {"type": "reasoning", "text": "short", "signature": "c2ln", "provider": "anthropic"},
        ]
    ),
    _user(
        [
            {"type": "text", "text": "Is it this one?"},
            {"type": "image_url", "image_url": {"url": _PNG, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://pictures.invalid/train.jpg"}},
            {"type": "file", "file": {"file_id": "f-1", "filename": "plan.pdf"}},
        ]
    ),
]

DESK: list[dict[str, Any]] = [
    _user("Cancel my seat.", id="cancel"),
    _call(("c1", "cancel", '{"seat":12}')),
    {
        "type": "suspension",
        "suspension_id": "s1",
        "kind": "approval",
        "tool_call_id": "c1",
        "prompt": "Really?",
        "expires_at": "2026-02-01T00:00:00Z",
    },
    {"type": "suspension", "suspension_id": "s2", "kind": "input"},
    {
        "type": "suspension",
        "suspension_id": "s3",
        "kind": "external",
        "prompt": "Wait for the bank.",
    },
    {"type": "resolution", "suspension_id": "s1", "outcome": "approved", "content": "yes"},
    {
        "type": "resolution",
        "suspension_id": "s2",
        "outcome": "answered",
        "content": [{"type": "text", "text": "row 4"}],
    },
    {"type": "resolution", "suspension_id": "s3", "outcome": "expired"},
    {"type": "resolution", "suspension_id": "nobody", "outcome": "cancelled"},
    {"type": "resolution", "suspension_id": "s2", "outcome": "rejected"},
    _result("c1", "done"),
    {
        "type": "turn.started",
        "turn_id": "r1",
        "model": "model-a",
        "lease": {"policy": "queue", "seconds": 30},
    },
    {"type": "turn.started", "turn_id": "r2", "lease": {"policy": "interrupt", "seconds": 30}},
    {"type": "turn.ended", "turn_id": "r2"},
    {"type": "turn.started", "turn_id": "r3"},
    {
        "type": "turn.ended",
        "turn_id": "r3",
        "model": "model-b",
        "lease": {"reason": "expired", "since": "@cancel"},
    },
    {"type": "loop.detected", "tool": "cancel", "arguments_sha256": "ab" * 32, "count": 3},
    {"type": "compaction.requested"},
    _user("A remark that is taken out later.", id="remark"),
    {"type": "event.dropped", "position": "@remark", "reason": "asked for"},
    {"type": "event.dropped", "position": "0-999999"},
    _user("Forget what follows."),
    _user("Forget this.", id="forgotten"),
    _model("Forgotten?"),
    {"type": "rollback", "to": "cancel"},
    {"type": "rollback", "to": "@forgotten"},
    {"type": "rollback", "to": "an id of nothing"},
    _user("So where were we?"),
    _user("Cancel my seat.", id="cancel"),
    {"type": "session.closed", "reason": "idle", "after": "@cancel"},
    {"type": "session.closed", "reason": "explicit"},
    {"type": "acme.ticket.assigned.v1", "ticket": 7, "to": {"name": "grace"}},
    {
        "type": "summary",
        "summary_id": "stale",
        "text": "A summary that comes too late.",
        "tokens": 8,
        "span": {
            "from": "@cancel",
            "to": "@remark",
            "count": 2,
            "positions": [0, 1],
            "digest": "00" * 32,
            "kept": [],
        },
        "previous": "another",
        "reason": "explicit",
        "summarizer": "extractive",
        "trust": "tool",
        "tokens_before": 90,
        "tokens_after": 8,
        "policy": "v1",
        "previous_position": "@cancel",
        "rollback": None,
        "model": "model-s",
        "cost": 0.0125,
    },
]


def _memory(kind: str, **fields: Any) -> dict[str, Any]:
    """A memory event with the id that its scope and text give it."""
    flat = {"user": "u-19", "channel": "web", **fields}
    text = fields.get("text") or fields.get("intent")
    if text is None:
        return {"type": kind, **flat}
    how = {"memory.fused": "composite", "skill.saved": "skill"}.get(kind, "record")
    scope = Scope("acme", "u-19", "web")
    name, how = (fields["topic"], "topic") if "topic" in fields else (normalize(text), how)
    flat |= {"memory_id": memory_id(scope, how, name), "normalized_text": normalize(text)}
    return {"type": kind, **flat}


_TAGS: dict[str, Any] = {
    "task": ["breakfast"],
    "tool": ["kettle"],
    "constraint": ["before nine"],
    "failure": ["too hot"],
    "affordance": ["boils water"],
}
_EXTRACTED: dict[str, Any] = {"origin": "model", "model": "model-e", "positions": ["@tea"]}
_TEA = _memory(
    "memory.saved",
    memory_type="preference",
    text="Prefers green tea, 80 °C, before nine.",
    trust="user",
    role="user",
    entities=["green tea"],
    temporal={"t_ref": "2026-01-31", "t_valid_from": "2026-01-31", "t_valid_to": "2027-01-31"},
    tags=_TAGS,
    confidence=0.75,
    **_EXTRACTED,
)
_MINT = _memory(
    "memory.saved",
    memory_type="preference",
    text="Drinks mint tea at night.",
    trust="user",
    topic="night drink",
)
_ABOUT: dict[str, Any] = {"memory_id": _TEA["memory_id"], **_EXTRACTED, "rollback": "@back"}
TAUGHT: list[dict[str, Any]] = [
    {"type": "conversation.opened", "user": "u-19", "channel": "web"},
    _user("Green tea for me, 80 °C, before nine.", id="tea"),
    _TEA,
    _MINT,
    {**_MINT, "user": "u-20"},
    {**_MINT, "memory_type": "rumour"},
    _user("Never mind."),
    {"type": "rollback", "to": "@tea", "id": "back"},
    {**_TEA, "rollback": None},
    {**_TEA, "rollback": "@back"},
    _memory(
        "memory.fused",
        memory_type="fact",
        text="Drinks tea all day.",
        trust="model",
        role="assistant",
        topic="drinks",
        entities=["tea"],
        temporal={"t_ref": "2026-01-31"},
        tags={"task": ["breakfast"]},
        confidence=0.5,
        source_record_ids=[_TEA["memory_id"], _MINT["memory_id"]],
        child_composite_ids=["0" * 64],
        rollback="@back",
        **_EXTRACTED,
    ),
    _memory("memory.outcome", succeeded=True, **_ABOUT),
    _memory("memory.superseded", by=_MINT["memory_id"], reason="a later word", **_ABOUT),
    _memory("memory.deleted", hard=True, reason="asked for", **_ABOUT),
    _memory(
        "skill.saved",
        intent="Make tea",
        doc_markdown="1. Boil.\n2. Wait.",
        preconditions=["there is a kettle"],
        trust="user",
        rollback="@back",
        **_EXTRACTED,
    ),
]
_COUNTS: dict[str, Any] = {
    "user": "u-19",
    "channel": "web",
    "records": [
        {"memory_id": _TEA["memory_id"], "retrieved": 3, "hits": 2},
        {"memory_id": _MINT["memory_id"], "retrieved": 1},
    ],
}
USED: list[dict[str, Any]] = [
    _memory("memory.retrieved", id="counts", **_COUNTS),
    _memory(
        "memory.retrieved",
        **{**_COUNTS, "user": None, "taught_by": "nobodys"},
        origin="model",
        model="model-e",
        positions=["@counts"],
        rollback="@counts",
    ),
]
LETTERS: list[dict[str, Any]] = [
    {"type": "conversation.opened", "user": "u-18"},
    _user("My number is 0000, keep it to yourself."),
    _model("I will."),
    _call(("q", "note", '{"n":0}')),
    _result("q", "noted", pinned=True),
]

GONE: list[dict[str, Any]] = [
    _user("This will be erased."),
    _model("As you wish."),
    {"type": "conversation.erased", "reason": "request"},
]
KEPT: list[dict[str, Any]] = [
    _user("This, too, but in the clear."),
    {"type": "conversation.erased"},
    _user("after the end"),
]

STORIES: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("acme", "station", STATION),
    ("acme", "desk", DESK),
    ("acme", "kept", KEPT),
    ("sealed", "letters", LETTERS),
    ("sealed", "gone", GONE),
    ("acme", "taught", TAUGHT),
    ("acme", users_log("acme", "u-19").conversation, USED),
]
