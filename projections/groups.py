"""Atomic groups of the tail: an assistant message with its calls and their results is one unit.

Results were paired by occurrence when they were folded (``Entry.link``), so grouping is a walk. A result whose call is not in the tail
is an orphan and belongs to no group: no provider would take it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from projections.lanes import RENDERED, Entry, Kind

SYNTHETIC_TEXT = "[no result: the call was not answered]"
WAITING_TEXT = "[no result yet: waiting for an approval or an answer]"


@dataclass(slots=True)
class Group:
    """One atomic unit of a render: its JSON bodies in order, their tokens, and the offsets it stands for."""

    first: int
    last: int
    tokens: int
    bodies: list[bytes]
    kind: int
    synthetic: int = 0
    results: dict[int, Entry] = field(default_factory=dict)
    head: Entry | None = None


def group_tail(tail: list[Entry], suspended: frozenset[str] = frozenset()) -> tuple[list[Group], int]:
    """Group a tail for rendering; returns the groups in order of their first message, and the number of orphaned results.

    Each group is complete: results stand right after their message in the order of its calls, wherever they came in the log, a repeated
    result counts once (the first), and a call without a result is answered by a short synthetic one. ``suspended`` are the ids of calls
    that wait for somebody. Held ranges come as groups without bodies; what a rollback abandoned does not come at all.
    """
    groups: list[Group] = []
    waiting: dict[int, Group] = {}
    orphans = 0
    for entry in tail:
        if entry.kind == Kind.RESULT:
            group = waiting.get(entry.link[0]) if entry.link else None
            if group is None or entry.link is None or entry.link[1] in group.results:
                orphans += 1
                continue
            group.results[entry.link[1]] = entry
        elif entry.kind in RENDERED:
            group = Group(entry.offset, entry.offset, entry.tokens, [entry.body], entry.kind, head=entry)
            groups.append(group)
            if entry.calls:
                waiting[entry.offset] = group
        elif entry.kind == Kind.HELD and entry.tokens:
            groups.append(Group(entry.start, entry.offset, 0, [], entry.kind, synthetic=entry.count))
    for group in waiting.values():
        _complete(group, suspended)
    return groups, orphans


def _complete(group: Group, suspended: frozenset[str]) -> None:
    head = group.head
    for index, (call_id, _name) in enumerate(head.calls or () if head else ()):
        result = group.results.get(index)
        if result is not None:
            group.bodies.append(result.body)
            group.tokens += result.tokens
            group.last = max(group.last, result.offset)
        else:
            text = WAITING_TEXT if call_id in suspended else SYNTHETIC_TEXT
            group.bodies.append(msgspec.json.encode({"role": "tool", "tool_call_id": call_id, "content": text}))
            group.tokens += len(text) + 4
            group.synthetic += 1
