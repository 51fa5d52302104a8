"""What an extraction finds: a typed statement that stands alone, and where it was learnt."""

from __future__ import annotations

from msgspec import Struct, field

from projections.events.memories import MemoryTags, MemoryTime, Trust

MAX_CHARS = 400
"""Characters of one extracted text: a longer one is no single statement."""


class Candidate(Struct, frozen=True):
    """A record that a span may have taught.

    ``offsets`` are the events that taught it, in order; ``time`` is the last one's own. ``topic``
    names an attribute that has one value at a time, None where statements stand side by side.
    ``trust`` follows from who said it, and nothing raises it. ``model`` found it; None: the rules.
    """

    memory_type: str
    text: str
    offsets: tuple[int, ...]
    time: str | None
    role: str
    trust: Trust
    confidence: float
    topic: str | None = None
    entities: tuple[str, ...] = ()
    temporal: MemoryTime | None = None
    tags: MemoryTags = field(default_factory=MemoryTags)
    model: str | None = None
