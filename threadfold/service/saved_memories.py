"""What somebody saves, as the log gets it: without what is private, in its scope, with its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import astuple, replace

from projections.errors import InvalidRequest
from projections.events import types as events
from projections.events.codec import MEMORY_NAMES
from projections.fold.memory_acceptance import MAX_TEXT
from projections.memory.identity import id_of, normalize
from projections.memory.private_text import all_without_private, is_marked, without_private
from projections.memory.valid_times import valid_times
from projections.names import Key, Position
from streams.log.history import event_of
from streams.log.kafka_log import KafkaLog
from threadfold.service.append_result import Appended, Applied
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import Drafter
from threadfold.service.spill import Drafts
from threadfold.service.whose import Whose


class Saved(NamedTuple):
    """An appended memory event and its log."""

    key: Key
    data: events.Learnt
    appended: Appended

    @property
    def memory_id(self) -> str:
        """The record that it is about."""
        found: str = self.data.memory_id  # type: ignore[attr-defined]
        return found

    @property
    def text(self) -> str:
        """What a statement is compared by."""
        if isinstance(self.data, events.SkillSaved):
            return self.data.doc_markdown
        return self.data.normalized_text if isinstance(self.data, events.MemorySaved) else ""

    def is_refused(self, by: Judged) -> bool:
        """Whether its conversation is known to have refused it."""
        done = by.get((self.key, self.appended.id))
        return done is not None and done.status == "rejected" and not self.key.of_user


Judged = dict[tuple[Key, str], Applied]
"""What the fold made of events, by their logs and ids."""
Saving = tuple[Whose, events.MemorySaved | events.SkillSaved]
"""What is to be saved, and whose."""
Save = tuple[Key, str | None, str | None, events.MemorySaved | events.SkillSaved]
"""What is saved, before the log, the user and the channel that it belongs to."""


Made = list[tuple[Key, events.MemorySaved | events.SkillSaved]]
"""What is saved, each with its log."""


def drafted(drafter: Drafter, saves: Sequence[Save], seed: str | None) -> tuple[Made, Drafts]:
    """:func:`filled` of each, and the drafts of their events; errors count them from 1."""
    made = [(save[0], filled(*save, f"memory {i}")) for i, save in enumerate(saves, 1)]
    flats = [(key, flat_event(data)) for key, data in made]
    return made, drafter.drafts(flats, "memory", True, seed)


def flat_event(data: events.Learnt) -> dict[str, Any]:
    """A memory event as callers write events: flat."""
    return {"type": MEMORY_NAMES[type(data)], **to_builtins(data)}


def filled(
    key: Key,
    user: str | None,
    channel: str | None,
    data: events.MemorySaved | events.SkillSaved,
    what: str,
) -> events.MemorySaved | events.SkillSaved:
    """What is saved, without what is private, in its scope and with its id.

    Raises:
        InvalidRequest: nothing is left of its text, it is too long, or it speaks of a time that is
            none.
    """
    data = _public_record(data, what) if isinstance(data, events.MemorySaved) else _public(data)
    named = data.text if isinstance(data, events.MemorySaved) else data.intent
    data = replace(data, normalized_text=normalize(named), user=user, channel=channel)
    if isinstance(data, events.SkillSaved) and not data.doc_markdown:
        raise InvalidRequest(f"{what}: field doc_markdown: nothing of it is left that may be kept")
    if not data.normalized_text:
        raise InvalidRequest(f"{what}: after removing private text, nothing is left to save")
    if len(named) > MAX_TEXT:
        raise InvalidRequest(f"{what}: {len(named)} characters: a text has at most {MAX_TEXT}")
    data.memory_id = id_of(key, data) or ""
    return data


def _public_record(data: events.MemorySaved, what: str) -> events.MemorySaved:
    """A record without what is private, with times that compare."""
    try:
        temporal = None if data.temporal is None else valid_times(data.temporal)
    except ValueError as error:
        raise InvalidRequest(f"{what}: field temporal.{error}") from None
    topic, tags = data.topic, data.tags
    if topic is not None and is_marked(topic):
        topic = without_private(topic)
        if not topic:
            raise InvalidRequest(
                f"{what}: field topic: after removing private text, nothing is left"
            )
    if tags is not None:
        tags = events.MemoryTags(*map(all_without_private, astuple(tags)))
    return replace(data, text=without_private(data.text), topic=topic, tags=tags, temporal=temporal)


def _public(data: events.SkillSaved) -> events.SkillSaved:
    """A skill without what is private."""
    return replace(
        data,
        intent=without_private(data.intent),
        doc_markdown=without_private(data.doc_markdown),
        preconditions=all_without_private(data.preconditions),
    )


async def judged(backend: ConversationService, saved: Sequence[Saved]) -> Judged:
    """Wait until the windows have these; raises as ``ConversationService.wait_applied`` says."""
    found: Judged = {}
    for key in dict.fromkeys(one.key for one in saved):
        own = [one.appended for one in saved if one.key == key]
        for done in await backend.wait_applied(key.tenant, key, own):
            found[key, done.id] = done
    return found


async def answers_of(
    log: KafkaLog, saved: Sequence[Saved], by: Judged, before: dict[str, str]
) -> list[dict[str, str]]:
    """``{"id", "status"}`` of each save, once the store has them; ``before`` are the texts of what
    was there, by id.
    """
    answers: list[dict[str, str]] = []
    for one in saved:
        about, done, text = one, by[one.key, one.appended.id], before.get(one.memory_id)
        status = "created" if text is None else "confirmed" if text == one.text else "revised"
        if done.status == "duplicate":
            about = await first_of(log, one, done.position)
        if (about.memory_id, about.text) != (one.memory_id, one.text):
            status = "duplicate"
        elif done.status not in ("applied", "duplicate"):
            status = done.status
        else:
            before[one.memory_id] = one.text
        answers.append({"id": about.memory_id, "status": status})
    return answers


async def first_of(log: KafkaLog, repeat: Saved, position: Position) -> Saved:
    """The save at this position, which another one repeats; that one where the log does not have
    the first any more. Raises ``KafkaUnavailable``.
    """
    raw = (await log.read([position])).get(position)
    event = None if raw is None else event_of(raw, repeat.key, log.seals)
    if not isinstance(event, events.MemorySavedEvent | events.SkillSavedEvent):
        return repeat
    return repeat._replace(data=event.data)
