"""Reducers: the free, deterministic shortenings, each a function over groups. They only ever
shorten, and only whole groups leave.

The same code serves both kinds of cuts: in ``stable`` mode the fold applies it at a cut and stores
what came of it, in ``exact`` mode a render applies it to copies. A result that the model has not
answered yet, one that is pinned, and a group that waits for somebody are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any

import msgspec

from projections.policy.policy import Policy
from projections.policy.profiles import (
    CALLABLE,
    DEFAULT_TEMPLATE,
    CompactResults,
    KeepMessages,
    KeepTurns,
    Limiting,
    Reducer,
    Shortening,
    SummarizeResults,
)
from projections.reducers.tables import items_in
from projections.reducers.variants import Variants
from projections.window.bodies import result_text
from projections.window.entry import LEFT_OUT, Entry, Kind
from projections.window.groups import Group, Link
from projections.window.tail import Shortened

MOST_FRUITLESS = 65_536
"""Shortenings of a window that are known to save nothing; of more, all are tried again."""
_COMPACT = "compact_tool_results"
_decode = msgspec.json.decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Reduction:
    """One run of reducers over groups, whose entries it changes.

    ``at`` is the offset of the event at which the cut is made, ``waiting`` are the calls that must
    stay whole, ``exact`` says that limits are what stays, and not maxima from which a cut goes down
    to the low-water mark.
    """

    groups: list[Group]
    policy: Policy
    variants: Variants
    at: int
    waiting: set[Link]
    exact: bool = False
    changed: bool = False
    shortened: dict[int, Shortened] = field(default_factory=dict)
    """What was shortened, as it was before, by the identity of the entry."""
    fruitless: set[int] = field(default_factory=set)
    """The shortenings that are known to save nothing: a window that stays over its mark is looked
    at again and again, and sixteen reducers of a hundred long lists take a processor for 0.3 s.
    """
    items: dict[bytes, float] = field(default_factory=dict)
    """By a result's body, of how many items the first may be shown: several reducers ask."""

    def freed(self) -> tuple[int, int]:
        """The tokens and the bytes of bodies that this run took away."""
        before = self.shortened.values()
        tokens = sum([tokens - entry.tokens for entry, tokens, _, _ in before])
        return tokens, sum([size - len(entry.body) for entry, _, size, _ in before])

    def freed_later(self) -> int:
        """At most so many tokens of these groups can :meth:`shorten` take away later that it left:
        of results that are spared or not read yet, and where calls are dropped of their messages.
        """
        policy = self.policy
        shortening = [one for one in policy.reducers if isinstance(one, Shortening)]
        drops = any(
            isinstance(one, CompactResults) and one.replacement is None for one in shortening
        )
        short = 0 if shortening else min(policy.soft_trim_chars, policy.hard_clear_chars)
        free = {id(result) for result, _ in self.results(policy.spared)}
        tokens = 0
        for group in self.groups:
            results = [group.results.get(i) for i in group.shown_calls()]
            left = [one for one in results if one and not one.pinned and id(one) not in free]
            if drops and (left or None in results or self.waits(group)):
                tokens += group.tokens
            else:
                tokens += sum([one.tokens for one in left if len(one.body) > short])
        return tokens

    def run(self, reducer: Reducer) -> None:
        """Apply one of the policy's reducers."""
        run = _RUN.get(type(reducer))
        if run is not None:
            run(self, reducer)

    def shorten(self) -> None:
        """The shortenings that save tokens: trimming of tool results, then the policy's reducers of
        them, in order.
        """
        if self.policy.trim_tool_results:
            self.trim()
        for reducer in self.policy.reducers:
            if isinstance(reducer, Shortening):
                self.run(reducer)

    def limit(self) -> None:
        """The policy's limits of turns and messages, in order."""
        for reducer in self.policy.reducers:
            if isinstance(reducer, Limiting):
                self.run(reducer)

    def trim(self) -> None:
        """Trim old tool results: over ``soft_trim_chars`` head and tail stay, over
        ``hard_clear_chars`` a stub.
        """
        policy = self.policy
        results = self.results(policy.protect_recent)
        for result, tool in results:
            # Bytes of JSON are at least as many as the characters they hold: most results need not
            # be looked into.
            if (result.variants and not result.variant.startswith("clip:")) or len(
                result.body
            ) <= min(policy.soft_trim_chars, policy.hard_clear_chars):
                continue
            size = len(result_text(_decode(result.body)))
            if size > policy.hard_clear_chars:
                self.shorten_result(result, "clear", tool)
            elif size > policy.soft_trim_chars:
                self.shorten_result(result, f"soft:{policy.soft_trim_chars}", tool)

    def leave_out_oldest(self, tokens: int, most: int) -> None:
        """Leave out groups, the oldest first, until of all ``tokens`` at most ``most`` are left;
        the last group, the newest user's and unread ones stay.
        """
        stays = {id(group) for group in (*newest(self.groups), *unread(self.groups))}
        for group in self.groups:
            if tokens <= most:
                return
            if id(group) not in stays and not group.pinned and not self.waits(group):
                before = group.tokens
                self.leave_out(group, LEFT_OUT)
                tokens -= before - group.tokens

    def leave_out(self, group: Group, reducer: str) -> None:
        """Leave a group out, but for its pinned results and the part of its message that calls for
        them.
        """
        if group.held or group.pinned:
            return
        shown = group.shown_calls()
        pinned = [i for i, result in group.results.items() if result.pinned and i in shown]
        for i, result in group.results.items():
            if i not in pinned:
                self._leave_out(result, reducer)
        if pinned:
            self.shorten_result(
                group.head, f"pair:{','.join(map(str, sorted(pinned)))}:{reducer}", "", always=True
            )
        else:
            self._leave_out(group.head, reducer)

    def waits(self, group: Group) -> bool:
        """Whether a call of the group may still be answered, or waits for somebody."""
        return group.waits(self.waiting)

    # -- parts

    def _shown(self) -> list[Group]:
        return [group for group in self.groups if group.messages()]

    def results(self, spared: int = 0) -> list[tuple[Entry, str]]:
        """The results that may be shortened, in the order of the log, with the names of their
        tools; the last ``spared`` left out.

        Spared are the last of all results in sight, whether they may be shortened or not.
        """
        read = _read(self.groups)
        found = [
            (group.results[i], (group.head.calls or ())[i][1])
            for group in self.groups
            if group.results and not group.out
            for i in group.shown_calls()
            if i in group.results and not group.results[i].out
        ]
        found.sort(key=lambda pair: pair[0].offset)
        if spared:
            del found[-spared:]
        return [
            (result, tool) for result, tool in found if result.offset < read and not result.pinned
        ]

    def compact(self, reducer: CompactResults) -> None:
        if reducer.replacement is None:
            self._drop_calls(reducer.keep_last_n)
            return
        text = DEFAULT_TEMPLATE if reducer.replacement == "template" else reducer.replacement
        named = text.startswith(CALLABLE)
        variant = f"call:{text[len(CALLABLE) :]}" if named else f"text:{text}"
        for result, tool in self.results(reducer.keep_last_n):
            if not result.variant.startswith(("text:", "call:")):
                self.shorten_result(result, variant, tool)

    def _drop_calls(self, keep_last_n: int) -> None:
        """Calls and their results go, all of a message or none; a message left empty goes, too."""
        free = {id(result) for result, _ in self.results(keep_last_n)}
        for group in self._shown():
            shown = group.shown_calls()
            results = [group.results[i] for i in shown if i in group.results]
            if not shown or self.waits(group) or not results:
                continue
            if all(id(result) in free or result.pinned for result in results) and any(
                not result.pinned for result in results
            ):
                kept = [i for i in shown if i in group.results and group.results[i].pinned]
                for result in results:
                    if not result.pinned:
                        self._leave_out(result, _COMPACT)
                if kept or result_text(_decode(group.head.body)).strip():
                    self.shorten_result(
                        group.head, "only:" + ",".join(map(str, kept)), "", always=True
                    )
                else:
                    self._leave_out(group.head, _COMPACT)

    def keep_turns(self, n: int) -> None:
        groups = self._shown()
        begins = [i for i, group in enumerate(groups) if group.head.kind == Kind.USER]
        if len(begins) > n or not n:
            keep = self._down_to(n)
            self._leave_out_all(groups[: begins[-keep]] if keep else groups, "keep_last_n_turns")

    def keep_messages(self, n: int) -> None:
        groups = self._shown()
        if sum(group.messages() for group in groups) <= n:
            return
        left, first = self._down_to(n), len(groups)
        while first and (groups[first - 1].messages() <= left or (n and first == len(groups))):
            first -= 1
            left -= groups[first].messages()
        self._leave_out_all(groups[:first], "keep_last_n_messages")

    def _down_to(self, n: int) -> int:
        if self.exact or not n:
            return n
        return max(1, int(n * self.policy.low_water))

    def _leave_out_all(self, groups: Iterable[Group], reducer: str) -> None:
        stays = {id(group) for group in unread(self.groups)}
        for group in groups:
            if id(group) not in stays and not self.waits(group):
                self.leave_out(group, reducer)

    def _leave_out(self, entry: Entry, reducer: str) -> None:
        self.shorten_result(entry, f"out:{reducer}", "", always=True)

    def shorten_result(
        self, entry: Entry, variant: str, tool: str, *, always: bool = False
    ) -> None:
        """Put an entry into another variant, if that is shorter (or ``always``)."""
        if entry.variant == variant or entry.out:
            return
        # What a callable makes may be another thing the next time.
        once = always or variant.startswith("call:")
        tried = None if once else self._tried(entry, variant, tool)
        if tried in self.fruitless:
            return
        body, chars = entry.body, 0
        if not self._is_whole(entry, variant):
            body, chars = self.variants.make(body, variant, entry, tool, entry.variants)
        tokens = entry.tokens
        if body != entry.body:
            tokens = min(tokens, self.variants.tokens(body)) if body else 0
        if body != entry.body and (tokens < entry.tokens or always):
            before = Shortened(entry, entry.tokens, len(entry.body), len(entry.variants))
            self.shortened.setdefault(id(entry), before)
            entry.shorten(self.at, variant, body, tokens, chars)
            self.changed = True
        elif tried is not None:
            if len(self.fruitless) >= MOST_FRUITLESS:
                self.fruitless.clear()
            self.fruitless.add(tried)

    def _is_whole(self, result: Entry, variant: str) -> bool:
        """Whether a variant that shows the first items shows all that there are."""
        name, _, top = variant.partition(":")
        if name != "head":
            return False
        found = self.items.get(result.body)
        if found is None:
            message = _decode(result.body)
            text = result_text(message)
            # One of several texts is another one in any case.
            one = message["content"] == text and _encode(message) == result.body
            found = self.items[result.body] = items_in(text) if one else inf
        return found <= int(top)

    def _tried(self, entry: Entry, variant: str, tool: str) -> int:
        """Stands for all that a shortening follows from. The hash of a body is worked out once."""
        of = (entry.offset, entry.body, entry.tokens, entry.chars)
        return hash((variant, tool, self.policy.encoding, *of))


def _show_first(reduction: Reduction, reducer: SummarizeResults) -> None:
    for result, tool in reduction.results():
        reduction.shorten_result(result, f"head:{reducer.top}", tool)


_RUN: dict[type[Reducer], Callable[[Reduction, Any], None]] = {
    KeepTurns: lambda reduction, reducer: reduction.keep_turns(reducer.n),
    KeepMessages: lambda reduction, reducer: reduction.keep_messages(reducer.n),
    CompactResults: lambda reduction, reducer: reduction.compact(reducer),
    SummarizeResults: _show_first,
}
"""What each reducer does; those that are not here shorten nothing by themselves."""


def newest(groups: list[Group]) -> list[Group]:
    """The groups that are left out last: the newest user's message, and the last group of all."""
    shown = (group for group in reversed(groups) if group.messages())
    last = next(shown, None)
    if last is None:
        return []
    users = (group for group in (last, *shown) if group.head.kind == Kind.USER)
    return [*islice(users, 1), last]


def unread(groups: list[Group]) -> list[Group]:
    """The groups with a result that the model has not read: it came after all that the model said,
    be its call an old one.
    """
    read = _read(groups)
    return [
        group
        for group in groups
        if group.results
        and any(group.results[i].offset > read for i in group.shown_calls() if i in group.results)
    ]


def _read(groups: list[Group]) -> int:
    """The offset up to which the model has read: of the last message that it said."""
    return max([g.head.offset for g in groups if g.head.kind == Kind.ASSISTANT], default=-1)
