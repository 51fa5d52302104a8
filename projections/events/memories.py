"""The events of the long-term memory: what was learnt, corrected, deleted and used.

They stand in the log of the conversation that taught it, or in the log of a user's own
(``projections.names.users_log``). ``projections.memory`` says what they mean together.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from projections.events.envelope import Event

MemoryType = Literal[
    "fact",
    "preference",
    "event",
    "constraint",
    "procedure",
    "failure_pattern",
    "tool_affordance",
]
MEMORY_TYPES: tuple[str, ...] = get_args(MemoryType)
"""What a record may be. The fold rejects others, so that a later release may add some."""
Trust = Literal["user", "model", "tool"]
Origin = Literal["explicit", "rules", "model"]


class MemoryTags(Struct, omit_defaults=True):
    """What a record is about, for recall by tags."""

    task: list[str] = []
    tool: list[str] = []
    constraint: list[str] = []
    failure: list[str] = []
    affordance: list[str] = []


class MemoryTime(Struct, omit_defaults=True):
    """When a record is about: the time it speaks of, and from when to when it holds (RFC 3339)."""

    t_ref: str | None = None
    t_valid_from: str | None = None
    t_valid_to: str | None = None


class Learnt(Struct, omit_defaults=True, kw_only=True):
    """What all these events say: whose memory it is, and where it was learnt.

    ``user`` and ``channel`` are those of the conversation at that moment. ``positions`` are the
    events that taught it, in order; a rollback to before the last of them takes it back. Without
    any the event itself counts. ``origin`` says who found it: what somebody saved stands like any
    event; what was extracted counts only if ``rollback`` is the last rollback of the log.
    """

    user: str | None = None
    channel: str | None = None
    positions: list[str] = []
    origin: Origin = "explicit"
    model: str | None = None
    rollback: str | None = None


class MemorySaved(Learnt, omit_defaults=True, kw_only=True):
    """A record of the long-term memory was learnt, confirmed, or (with a ``topic``) revised.

    ``memory_id`` follows from the scope and the normalised text, or from the scope and the topic
    (``projections.memory.identity``).
    """

    memory_id: str
    memory_type: str
    text: str
    normalized_text: str
    trust: Trust
    topic: str | None = None
    role: str | None = None
    entities: list[str] = []
    temporal: MemoryTime | None = None
    tags: MemoryTags | None = None
    confidence: float = 1.0


class MemoryFused(MemorySaved, omit_defaults=True, kw_only=True):
    """Several records became a composite, which ranks above them; they stay."""

    source_record_ids: list[str]
    child_composite_ids: list[str] = []


class MemorySuperseded(Learnt, omit_defaults=True, kw_only=True):
    """A later statement conflicts with a record. ``by`` is the record of that statement."""

    memory_id: str
    by: str
    reason: str | None = None


class MemoryDeleted(Learnt, omit_defaults=True, kw_only=True):
    """A record or a skill was deleted. ``hard``: its text leaves the store, too."""

    memory_id: str
    hard: bool = False
    reason: str | None = None


class MemoryOutcome(Learnt, omit_defaults=True, kw_only=True):
    """An action that used a record or a skill succeeded or failed."""

    memory_id: str
    succeeded: bool


class RetrievedRecord(Struct, omit_defaults=True):
    """How often a record was given out, and how often of these it was a hit: relevant enough for a
    prompt.
    """

    memory_id: str
    retrieved: int
    hits: int = 0


class MemoryRetrieved(Learnt, omit_defaults=True, kw_only=True):
    """Searches and contexts gave records out: counts of some seconds, for one scope.

    It stands in the log of a user's own, also for what conversations taught: a conversation's log
    has what was said in it, and not who read. ``taught_by`` is the conversation that taught the
    records, where it has no user: they are in its scope.
    """

    records: list[RetrievedRecord]
    taught_by: str | None = None


class SkillSaved(Learnt, omit_defaults=True, kw_only=True):
    """A skill was saved: how something is done. Saving the same intent again revises it."""

    memory_id: str
    intent: str
    normalized_text: str
    doc_markdown: str
    trust: Trust
    preconditions: list[str] = []


class MemoryVoided(Struct, omit_defaults=True):
    """What a log taught changed: a rollback went back (``to`` is the last event that stays), or an
    operator dropped an event (``position``). On the topic of memories only.
    """

    by: str
    to: str | None = None
    position: str | None = None


class MemorySavedEvent(Event, tag="threadfold.memory.saved.v1"):
    data: MemorySaved


class MemoryFusedEvent(Event, tag="threadfold.memory.fused.v1"):
    data: MemoryFused


class MemorySupersededEvent(Event, tag="threadfold.memory.superseded.v1"):
    data: MemorySuperseded


class MemoryDeletedEvent(Event, tag="threadfold.memory.deleted.v1"):
    data: MemoryDeleted


class MemoryOutcomeEvent(Event, tag="threadfold.memory.outcome.v1"):
    data: MemoryOutcome


class MemoryRetrievedEvent(Event, tag="threadfold.memory.retrieved.v1"):
    data: MemoryRetrieved


class SkillSavedEvent(Event, tag="threadfold.skill.saved.v1"):
    data: SkillSaved


MemoryEvent = (
    MemorySavedEvent
    | MemoryFusedEvent
    | MemorySupersededEvent
    | MemoryDeletedEvent
    | MemoryOutcomeEvent
    | MemoryRetrievedEvent
    | SkillSavedEvent
)
