"""What a model says that a span teaches, checked: each record by itself, so that a bad one costs no
other.

A model may be wrong, or fooled by what it read. So nothing that decides whose a record is, or how
far it is trusted, is taken from it: scope and trust follow from the conversation and from who said
the events that it names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from projections.events.memories import MemoryTags, MemoryTime, MemoryType, Trust
from projections.memory.extraction.candidate import MAX_CHARS, Candidate
from projections.memory.extraction.clauses import instructs, is_secret
from projections.memory.extraction.third_person import THE_USER
from projections.memory.identity import normalize
from projections.memory.private_text import without_private
from projections.memory.similarity import stems
from projections.memory.valid_times import valid_times

MOST = 60
"""Records of one answer; further ones are refused."""
TRUST: dict[str, Trust] = {"user": "user", "assistant": "model", "tool": "tool"}
"""How far what a role says is trusted."""
_LEAST_FIRST = ("tool", "model", "user")
_NOT_ALONE = re.compile(
    r"^(?:i|we|my|our|me|us|you|your|he|she|it|they|his|her|its|their|this|that|these|those)\b",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"lives in|name|called|from|works|age|budget|(?:favourite|taste|allergy:) [\w' -]{1,60}"
)
"""What has one value at a time, as the rules name it: what a model calls otherwise stands beside
other records, as a wrong name would make one take the place of another.
"""
_CODE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b(?=\w*\d\w*\d\w*\d\w*\d)\w+\b")
_YEAR = re.compile(r"(?:19|20)\d\d")

Refusal = Literal[
    "form",
    "scope",
    "positions",
    "temporal",
    "text",
    "instruction",
    "secret",
    "invented",
    "duplicate",
    "too_many",
]
_Short = Annotated[str, Meta(min_length=1, max_length=100)]
_Tags = Annotated[list[_Short], Meta(max_length=8)]


class Heard(NamedTuple):
    """An event as the model was sent it: what ``role`` said, without what is private."""

    offset: int
    role: str
    text: str
    time: str | None = None
    name: str | None = None


class Whose(NamedTuple):
    """The user and channel of a conversation, and its name."""

    user: str | None
    channel: str | None
    conversation: str


class _ModelTags(msgspec.Struct):
    task: _Tags = []
    tool: _Tags = []
    constraint: _Tags = []
    failure: _Tags = []
    affordance: _Tags = []


class _ModelRecord(msgspec.Struct):
    """A record in an answer; a scope is not asked for, and must be the conversation's."""

    type: MemoryType
    text: Annotated[str, Meta(min_length=1, max_length=MAX_CHARS)]
    positions: Annotated[list[str], Meta(min_length=1, max_length=32)]
    confidence: Annotated[float, Meta(ge=0, le=1)]
    entities: Annotated[list[_Short], Meta(max_length=16)] | None = None
    tags: _ModelTags | None = None
    temporal: MemoryTime | None = None
    topic: str | None = None
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None


class _Refused(Exception):
    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


class Checked(NamedTuple):
    """The records of an answer that hold, in its order, and how many were refused, by reason."""

    candidates: list[Candidate]
    refused: Counter[Refusal]


def checked_records(answer: Any, heard: Mapping[str, Heard], whose: Whose, model: str) -> Checked:
    """The records of a model's answer.

    Args:
        answer: the JSON object, ``{"records": [...]}``.
        heard: what the model was sent, by position.
        model: which one it was.

    Raises:
        ValueError: it is no list of records, or none of them has the form that was asked for.
    """
    records = answer.get("records") if isinstance(answer, dict) else None
    if not isinstance(records, list):
        raise ValueError("it has no list of records")
    said = _squeezed([one.text for one in heard.values()])
    found: dict[tuple[str, str], Candidate] = {}
    refused: Counter[Refusal] = Counter()
    for given in records[:MOST]:
        try:
            one = _candidate(given, heard, whose, said, model)
            if found.setdefault((one.memory_type, normalize(one.text)), one) is not one:
                raise _Refused("duplicate")
        except _Refused as error:
            refused[error.reason] += 1
    if records and refused["form"] + refused["positions"] == min(len(records), MOST):
        raise ValueError("none of its records has the form that was asked for")
    if len(records) > MOST:
        refused["too_many"] += len(records) - MOST
    return Checked(list(found.values()), refused)


def _candidate(
    given: Any, heard: Mapping[str, Heard], whose: Whose, said: str, model: str
) -> Candidate:
    try:
        record = msgspec.convert(given, _ModelRecord)
    except msgspec.ValidationError:
        raise _Refused("form") from None
    for own, named in zip(whose, (record.user, record.channel, record.conversation), strict=True):
        if named is not None and named != own:
            raise _Refused("scope")
    if not all(position in heard for position in record.positions):
        raise _Refused("positions")
    events = sorted({heard[position] for position in record.positions})
    text = _checked_text(record.text, said)
    last = events[-1]
    tags = record.tags or _ModelTags()
    return Candidate(
        memory_type=record.type,
        text=text,
        offsets=tuple(event.offset for event in events),
        time=last.time,
        role=last.role,
        trust=min((TRUST[event.role] for event in events), key=_LEAST_FIRST.index),
        confidence=round(record.confidence, 3),
        topic=_topic_of(record.topic, text, events),
        entities=tuple(dict.fromkeys(record.entities or ())),
        temporal=_temporal_of(record.temporal),
        tags=MemoryTags(**msgspec.structs.asdict(tags)),
        model=model,
    )


def _checked_text(given: str, said: str) -> str:
    """The text of a record, if it stands alone and says nothing that nobody said."""
    text = " ".join(without_private(given).split())
    if instructs(text):
        raise _Refused("instruction")
    if is_secret(text):
        raise _Refused("secret")
    if text.endswith("?") or _NOT_ALONE.match(text) or not stems(text):
        raise _Refused("text")
    for code in _CODE.findall(text):
        if not _YEAR.fullmatch(code) and _squeezed([code]) not in said:
            raise _Refused("invented")
    return text if text[-1] in ".!…\"'”’)" else f"{text}."


def _topic_of(given: str | None, text: str, events: Sequence[Heard]) -> str | None:
    """The attribute of a speaker that a record gives a value; None where it has none that is known,
    or is of somebody else.
    """
    name = " ".join((given or "").lower().split())
    speakers = {event.name or THE_USER for event in events}
    if not _TOPIC.fullmatch(name) or len(speakers) != 1 or events[-1].role != "user":
        return None
    subject = speakers.pop().lower()
    begins = (f"{subject} ", f"{subject}'s {name.split()[0]} ")
    return f"{subject}: {name}" if text.lower().startswith(begins) else None


def _temporal_of(given: MemoryTime | None) -> MemoryTime | None:
    if given is None:
        return None
    # A model may write an empty text for a time that it does not know.
    times = msgspec.structs.asdict(given)
    known = MemoryTime(**{name: time or None for name, time in times.items()})
    try:
        return valid_times(known)
    except ValueError:
        raise _Refused("temporal") from None


def _squeezed(texts: Sequence[str]) -> str:
    """Letters and digits alone: a code reads the same however it is written."""
    return "".join(c for c in "\n".join(texts).casefold() if c.isalnum() or c == "\n")
