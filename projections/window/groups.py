"""Atomic groups of the tail: an assistant message with its calls, its reasoning and their results
is one unit.

Results were paired by occurrence when they were folded (``Entry.link``), so grouping is a walk, one
entry at a time. A result whose call is not in the tail is an orphan: no provider would take it, so
it is a group of its own that is never rendered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from projections.events.provider_limits import call_ids
from projections.window.bodies import has_text
from projections.window.entry import RENDERED, Entry, Kind

SYNTHETIC_TEXT = "[no result: the call was not answered]"
WAITING_TEXT = "[no result yet: waiting for an approval or an answer]"
Link = tuple[int, int]


@dataclass(slots=True)
class Group:
    """One atomic unit: its message (``head``; a held range, or an orphaned result), and the results
    of its calls by their index.
    """

    head: Entry
    results: dict[int, Entry] = field(default_factory=dict)

    @property
    def orphan(self) -> bool:
        """Whether it is a result without a call: never rendered."""
        return self.head.kind == Kind.RESULT

    @property
    def held(self) -> bool:
        """Whether it stands for a range that only the log holds."""
        return self.head.kind == Kind.HELD

    @property
    def out(self) -> bool:
        """Whether its message is left out; a pinned result of it may still stand, with a form of
        the message that calls for it alone.
        """
        return self.head.out

    @property
    def pinned(self) -> bool:
        """Whether it is nothing but calls of pinned results, or that is what a cut left of it: no
        cut leaves out more.
        """
        shown = self.shown_calls()
        return (
            bool(shown)
            and all(i in self.results and self.results[i].pinned for i in shown)
            and not has_text(self.head.body)
        )

    @property
    def entries(self) -> list[Entry]:
        """Its message and its results, in the order of their calls."""
        return (
            [self.head, *(self.results[i] for i in sorted(self.results))]
            if self.results
            else [self.head]
        )

    @property
    def last(self) -> int:
        """The offset of its latest entry."""
        return max(entry.offset for entry in self.entries)

    @property
    def tokens(self) -> int:
        """Tokens of its entries as they stand; of a held range none."""
        if self.held:
            return 0
        return (
            self.head.tokens + sum([result.tokens for result in self.results.values()])
            if self.results
            else self.head.tokens
        )

    def shown_calls(self) -> list[int]:
        """The indexes of the calls that its message has as it stands."""
        return self.head.shown_calls()

    def unanswered(self) -> list[int]:
        """The indexes of shown calls that have no result."""
        return [i for i in self.shown_calls() if i not in self.results]

    def messages(self) -> int:
        """How many messages it is rendered as."""
        head = self.head
        if head.kind == Kind.RESULT or head.kind == Kind.HELD or head.out:
            return 0
        return 1 + len(self.shown_calls()) if head.calls else 1

    def waits(self, calls: Collection[Link]) -> bool:
        """Whether one of its calls is among ``calls``, each as ``(offset, index)``."""
        head = self.head
        if not head.calls or not calls:
            return False
        return any((head.offset, i) in calls for i in range(len(head.calls)))

    def copy(self) -> Group:
        """A group whose entries may be changed without the window's being so."""
        return Group(
            msgspec.structs.replace(self.head),
            {i: msgspec.structs.replace(result) for i, result in self.results.items()},
        )


class Grouper:
    """Groups entries one by one; what it has after each is what grouping all of them from scratch
    gives.
    """

    def __init__(self) -> None:
        self._groups: dict[int, Group] = {}
        self._number = 0
        self._by_call: dict[int, Group] = {}
        self._early: dict[Link, int] = {}
        """The numbers of results that came before their calls."""

    @property
    def groups(self) -> list[Group]:
        """The groups so far, in the order of their messages."""
        return list(self._groups.values())

    def add(self, entry: Entry) -> None:
        """Take the next entry of a tail in."""
        kind = entry.kind
        if kind == Kind.RESULT:
            self._add_result(entry)
        elif kind in RENDERED:
            group = Group(entry)
            self._put(group)
            if entry.calls:
                self._by_call[entry.offset] = group
                for i in range(len(entry.calls)):
                    early = self._early.pop((entry.offset, i), None)
                    if early is not None:
                        group.results[i] = self._groups.pop(early).head
        elif kind == Kind.HELD and entry.tokens:
            self._put(Group(entry))

    def _add_result(self, entry: Entry) -> None:
        link = entry.link
        group = self._by_call.get(link[0]) if link else None
        if group is not None and link is not None and link[1] not in group.results:
            group.results[link[1]] = entry
            return
        number = self._put(Group(entry))
        if group is None and link is not None and link[0] > entry.offset:
            # It came before its call.
            self._early.setdefault(link, number)

    def _put(self, group: Group) -> int:
        self._number += 1
        self._groups[self._number] = group
        return self._number


def group_tail(tail: Iterable[Entry]) -> list[Group]:
    """The groups of a tail in order of their messages: every rendered entry is in exactly one.

    What a rollback abandoned, and events that are not rendered, are in none.
    """
    grouper = Grouper()
    for entry in tail:
        grouper.add(entry)
    return grouper.groups


def answer_of(group: Group, index: int, suspended: set[Link]) -> bytes:
    """The short synthetic result of a call that has none, as a message; ``suspended`` are the calls
    that wait for somebody.
    """
    call_id = call_ids([call[0] for call in group.head.calls or ()])[index]
    text = WAITING_TEXT if (group.head.offset, index) in suspended else SYNTHETIC_TEXT
    return msgspec.json.encode({"role": "tool", "tool_call_id": call_id, "content": text})


ANSWER_TOKENS = len(WAITING_TEXT) + 4
"""Tokens taken for a synthetic result: a token is at least a byte of its text."""
