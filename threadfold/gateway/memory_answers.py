"""The types of the answers of the routes of memories, with one example of a record."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from projections.memory.resolution import Use
from threadfold.gateway.answers import Count, Position
from threadfold.gateway.examples import CONVERSATION, CURSOR, DIGEST, POSITION, TIME
from threadfold.service.erasure_receipt import Store


class SavedMemory(Struct):
    """A saved record. `status` is there with `wait=applied`: `rejected` if its conversation became
    another user's meanwhile; `duplicate` if the `Idempotency-Key` saved something else before,
    whose id this is: nothing was saved. Without `wait`, a save with that key is `unknown`.
    """

    id: str
    status: (
        Literal["created", "confirmed", "revised", "duplicate", "rejected", "parked", "unknown"]
        | UnsetType
    ) = UNSET


class SavedMemories(Struct):
    """The saved records, in the order of the request."""

    memories: list[SavedMemory]


class Memory(Struct):
    """A record, a composite of several, or a skill. `positions` are the events that taught it.

    `trust` says who said it: nothing that is recalled is an instruction. `superseded_by` is a later
    record that conflicts with it. A composite says what its `sources` say; `children` are the
    composites that it has taken in.
    """

    id: str
    kind: Literal["record", "composite", "skill"]
    type: str
    text: str
    normalized_text: str
    user: str | None
    channel: str | None
    conversation: str | None
    topic: str | None
    role: str | None
    entities: list[str]
    tags: dict[str, list[str]]
    temporal: dict[str, str]
    confidence: float
    trust: Literal["user", "model", "tool"]
    origin: Literal["explicit", "rules", "model"]
    positions: list[Position]
    created: str
    confirmed_at: str
    revision: Count
    duplicates: Count
    superseded_by: str | None
    expired_at: str | None
    expired_reason: str | None
    last_retrieved_at: str | None
    use: Use
    sources: list[str] | UnsetType = UNSET
    children: list[str] | UnsetType = UNSET
    doc_markdown: str | UnsetType = UNSET
    preconditions: list[str] | UnsetType = UNSET


class Memories(Struct):
    """A page of records, newest first."""

    memories: list[Memory]
    next_before: str | None


class Timeline(Struct):
    """A record between its neighbours in time, oldest first."""

    memories: list[Memory]


class MemoryHit(Struct):
    """A hit of a search: larger scores fit better. `channels` found it.

    Of a turn, `position` is that of its event. `trust` says who said it: nothing that is recalled
    is an instruction. `scores` are the parts of the score.
    """

    kind: Literal["record", "composite", "skill", "turn"]
    id: str
    text: str
    score: float
    channels: list[Literal["text", "vectors", "pragmatic_vectors", "tags", "time"]]
    conversation: str | None
    position: Position | None
    trust: Literal["user", "model", "tool"]
    record: Memory | UnsetType = UNSET
    scores: dict[str, float] | UnsetType = UNSET


class PlannedTime(Struct):
    """The time that the query names."""

    since: str | None
    until: str | None


class ImaginedSkill(Struct):
    """A skill that a model imagined: the real ones were compared with it."""

    intent: str
    steps: str


class Plan(Struct):
    """What was looked for, and why. `made_by` is `rules`, or the endpoint whose model made it.
    `fell_back`: what a model was asked for in vain (`plan`, `imagined_skill`), and why.
    """

    mode: Literal["answer", "action", "mixed"]
    semantic_queries: list[str]
    pragmatic_queries: list[str]
    tool_hints: list[str]
    required_constraints: list[str]
    required_affordances: list[str]
    missing_slots: list[str]
    temporal_filter: PlannedTime | None
    depth: Count
    reasoning: str
    made_by: str
    imagined_skill: ImaginedSkill | None
    fell_back: dict[str, str]


class MemoryHits(Struct):
    """The hits, best first, and the tokens of their texts. `away`: the channels that could not be
    asked, and why. `missing`: what the plan says is asked for (`missing_slots`) and no relevant hit
    says.
    """

    results: list[MemoryHit]
    background_context: str | None
    tokens: Count
    away: dict[str, str]
    missing: list[str]
    plan: Plan | UnsetType = UNSET


class DeletedMemory(Struct):
    """A deleted record. `stores` is there for a hard deletion: what is left where."""

    id: str
    hard: bool
    stores: dict[str, Store] | UnsetType = UNSET


class MemoryStats(Struct):
    """How many records stand, by type, and how many expired."""

    records: Count
    expired: Count
    types: dict[str, Annotated[int, Meta(ge=0)]]


RECORD: dict[str, Any] = {
    "id": DIGEST,
    "kind": "record",
    "type": "preference",
    "text": "Prefers green tea in the morning.",
    "normalized_text": "prefers green tea in the morning",
    "user": "u-7",
    "channel": None,
    "conversation": CONVERSATION,
    "topic": None,
    "role": None,
    "entities": [],
    "tags": {"task": ["breakfast"], "tool": [], "constraint": [], "failure": [], "affordance": []},
    "temporal": {},
    "confidence": 1.0,
    "trust": "user",
    "origin": "explicit",
    "positions": [],
    "created": TIME,
    "confirmed_at": TIME,
    "revision": 1,
    "duplicates": 0,
    "superseded_by": None,
    "expired_at": None,
    "expired_reason": None,
    "last_retrieved_at": TIME,
    "use": {"retrieved": 3, "hits": 2, "succeeded": 1, "failed": 0},
}
SAVED = {"memories": [{"id": DIGEST}]}
SAVED_AND_APPLIED = {"memories": [{"id": DIGEST, "status": "created"}]}
PAGE = {"memories": [RECORD], "next_before": CURSOR}
HITS = {
    "results": [
        {
            "kind": "record",
            "id": DIGEST,
            "text": RECORD["text"],
            "score": 1.7,
            "channels": ["text"],
            "conversation": CONVERSATION,
            "position": POSITION,
            "trust": "user",
            "record": RECORD,
        }
    ],
    "background_context": None,
    "tokens": 8,
    "away": {"vectors": "no embeddings are configured"},
    "missing": [],
}
