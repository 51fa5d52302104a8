"""Which memory events a log's window accepts.

They follow the rule of summaries: what was extracted counts only if the last rollback it knew is
the latest. So late, repeated and abandoned extractions come out alike, live and on replay. The
window keeps nothing of a record. It keeps whose memory its log has taught, so that a rollback, an
erasure or a dropped event can be announced to them.
"""

from __future__ import annotations

from projections.errors import InvalidPosition
from projections.events.memories import (
    MEMORY_TYPES,
    Learnt,
    MemoryDeleted,
    MemoryOutcome,
    MemoryRetrieved,
    MemorySaved,
    SkillSaved,
)
from projections.memory.identity import id_of
from projections.names import parse_position, user_tag, users_log
from projections.window.window import Window

MAX_TEXT = 8_192
"""Characters of a record's text."""
MAX_RETRIEVED = 500
"""Records of one event of use counts."""
MAX_USERS = 16
"""Users whose memory one log may teach: a conversation mostly has one."""


def why_not_learnt(window: Window, offset: int, data: Learnt) -> str | None:
    """Why the window does not accept a memory event, None if it does."""
    wrong = _wrong_scope(window, data)
    if wrong is not None:
        return wrong
    if data.origin != "explicit":
        latest = window.meta.rollback
        if data.rollback != (None if latest is None else window.position_of(latest)):
            return "it does not know the latest rollback"
    if not _come_before(window, offset, data.positions):
        return "its positions are not of earlier events of this log, in order"
    if isinstance(data, MemoryRetrieved):
        return _wrong_counts(window, data)
    own = id_of(window.key, data)
    if own is not None and data.memory_id != own:  # type: ignore[attr-defined]
        return "its memory_id does not follow from its scope and text"
    return _wrong_form(data)


def _wrong_scope(window: Window, data: Learnt) -> str | None:
    """Why it is not about the memory that the log teaches now. A record that the log taught can be
    deleted and rated by it also after that: one that has no user is in no other log.
    """
    key, state = window.key, window.state
    if key.of_user and users_log(key.tenant, data.user) != key:
        return "it is of another user than the log"
    own = key.of_user or (data.user, data.channel) == (state.user, state.channel)
    about = isinstance(data, MemoryDeleted | MemoryOutcome) and _has_taught(window, data.user)
    if not own and not about:
        return "it is of another user or channel than the conversation"
    if not may_teach(window, data.user):
        return f"the log has taught the memory of {MAX_USERS} users already"
    return None


def may_teach(window: Window, user: str | None) -> bool:
    """Whether the log has taught this user's memory, or may teach one more."""
    return len(window.meta.memory_users or ()) < MAX_USERS or _has_taught(window, user)


def _has_taught(window: Window, user: str | None) -> bool:
    return user_tag(window.key.tenant, user) in (window.meta.memory_users or ())


def _come_before(window: Window, offset: int, positions: list[str]) -> bool:
    last = -1
    for text in positions:
        try:
            partition, at = parse_position(text)
        except InvalidPosition:
            return False
        if partition != window.partition or not last < at < offset:
            return False
        last = at
    return not (positions and window.key.of_user)


def _wrong_counts(window: Window, data: MemoryRetrieved) -> str | None:
    if not window.key.of_user:
        return "use counts belong in the user's own log"
    if data.user is not None and data.taught_by is not None:
        return "a record of a user must have no conversation"
    if not 1 <= len(data.records) <= MAX_RETRIEVED:
        return f"records has not 1 to {MAX_RETRIEVED} records"
    if not all(0 <= one.hits <= one.retrieved for one in data.records):
        return "a count is negative, or has more hits than retrievals"
    return None


def _wrong_form(data: Learnt) -> str | None:
    if isinstance(data, MemorySaved):
        if data.memory_type not in MEMORY_TYPES:
            return f"memory_type is none of {', '.join(MEMORY_TYPES)}"
        if not 0 <= data.confidence <= 1:
            return "confidence is not 0 to 1"
        if not data.normalized_text or len(data.text) > MAX_TEXT:
            return f"text has not 1 to {MAX_TEXT} characters"
    if isinstance(data, SkillSaved) and not data.normalized_text:
        return "intent is empty"
    return None
