"""What a store holds of a conversation, compared with what the log says; everything that counts as
a difference is here.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.errors import CorruptWindow
from projections.fold.timers import next_timer, timed
from projections.names import Key
from projections.render.read_header import AWAITING, flat_digest, read_header_of
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.listing import QUARANTINED, listed, place, places_of
from projections.storage.records import Index, Stored
from projections.storage.stubs import decode_stub
from projections.window.meta import Meta
from projections.window.window import Window

MISSING = "its window is missing"
TOO_MANY = "it has a window, and the log has no such conversation"
UNREADABLE = "its window cannot be read"


def difference(parts: Stored | None, folded: Window) -> str | None:
    """How a stored window differs from the one that the log gives, in a few words; None where it
    does not.
    """
    if parts is None:
        return MISSING
    try:
        stored = parts.load(folded.key, folded.partition, folded.rules)
    except CorruptWindow as error:
        return f"{UNREADABLE} ({_inner(str(error))})"
    if stored.image() != folded.image():
        return _what(stored, folded)
    head = decode_head(parts.fields[HEAD])
    if head.messages != (flat_digest(folded) if read_header_of(folded).flat else b""):
        return "the digest of its messages"
    return (
        None
        if parts.stub is None or _stands_for(parts.stub, head)
        else "its stub, because it hibernates"
    )


def _stands_for(value: bytes, head: Head) -> bool:
    """Whether a stub says of its window what the window says: that is what lists show, and what a
    fold of the log is held to.
    """
    stub = decode_stub(value)
    same_header = (stub.state, stub.tokens) == (head.read_header.state, head.read_header.tokens)
    return same_header and stub.fits(head.position, head.count, head.digest)


def _inner(text: str) -> str:
    """What is wrong, out of the sentence that says what a worker would do about it."""
    _, _, rest = text.partition("cannot be read (")
    return rest.rpartition(")")[0][:160] or text[:160]


def _what(stored: Window, folded: Window) -> str:
    names = [
        name
        for name in Meta.__struct_fields__
        if getattr(stored.meta, name) != getattr(folded.meta, name)
    ]
    if len(stored.tail) != len(folded.tail):
        names.append(f"its tail has {len(stored.tail)} entries, not {len(folded.tail)}")
    else:
        pairs = zip(stored.tail, folded.tail, strict=True)
        wrong = [folded.position_of(mine.offset) for theirs, mine in pairs if theirs != mine]
        names += [f"its tail's entry of {position}" for position in wrong[:3]]
    if stored.recent_ids.packed() != folded.recent_ids.packed():
        names.append("its recent ids")
    return ", ".join(names)


def is_due(window: Window) -> bool:
    """Whether a window has its place in the due set."""
    return window.meta.due is not None and window.meta.quarantine is None


def has_timer(window: Window) -> bool:
    """Whether a window waits for a time."""
    return next_timer(timed(window), 0, 0) is not None


def misplaced(index: Index, window: Window) -> list[str]:
    """In which of the places beside its window a conversation is wrongly, or is missing; times are
    delivery state and not compared.
    """
    key, now = window.key, listed(window)
    recent, waiting = (
        index.lists.get(f"recent:{key.tenant}", {}),
        index.lists.get(f"waiting:{key.tenant}", {}),
    )
    places = [
        ("the due set", key in index.due, is_due(window)),
        ("the timers", key in index.timers, has_timer(window)),
        # A user's own log is no conversation that anybody is shown.
        (
            "the recent conversations",
            key.conversation in recent,
            not (now.erased or key.of_user),
        ),
        ("those that wait", key.conversation in waiting, now.suspended),
        ("the parked ones", str(key) in index.lists.get(QUARANTINED, {}), now.quarantined),
    ]
    mine = places_of(key.tenant, now)
    places += [
        (
            f"its {name.partition(':')[0]}'s list",
            key.conversation in index.lists.get(name, {}),
            True,
        )
        for name in mine
    ]
    for awaiting in AWAITING:
        name = place("state", key.tenant, awaiting)
        if name not in mine:
            there = key.conversation in index.lists.get(name, {})
            places.append((f"those in state {awaiting}", there, False))
    return [
        f"it is {'missing in' if right else 'wrongly in'} {name}"
        for name, there, right in places
        if there != right
    ]


def named(index: Index) -> Iterator[Key]:
    """All conversations that the places beside the windows name, but those of users' lists
    alone.
    """
    yield from index.due
    yield from index.timers
    for name, times in index.lists.items():
        kind, _, tenant = name.partition(":")
        for conversation in times:
            if kind in ("recent", "waiting"):
                yield Key(tenant, conversation)
            elif kind == QUARANTINED:
                yield Key(*conversation.partition("/")[::2])
