"""What a batch of news changes in a store that is kept by key.

Pure but for what it reads. As in ``streams.memory.sqlite_changes``, all of a batch is taken in at
once: what is taken back first, then what is deleted for good, then facts, then the records that are
touched, each worked out once. The order within it makes no difference (the law of decision 0030).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from projections.events.types import MemoryDeleted
from projections.memory.identity import Scope
from projections.memory.news import Dropped, Fact, LogErased, News, Used, WentBack
from projections.memory.resolution import Record
from projections.names import Key
from streams.memory.kept import (
    Code,
    Kept,
    LogState,
    Place,
    Size,
    Taught,
    Use,
    Words,
    is_fused,
    kept_of,
    resolved,
    sizes_of,
    sources_of,
    states,
    texts_of,
)


class KeptByKey(Protocol):
    """What there is already; what is missing is left out."""

    def logs(self, logs: Collection[Key]) -> dict[Key, LogState]:
        """What was taken back of logs."""

    def taught(self, logs: Collection[Key]) -> dict[Key, dict[int, Taught]]:
        """What logs taught, by offset."""

    def kept(self, places: Collection[Place]) -> dict[Place, Kept]:
        """The facts of ids."""

    def sizes(self, codes: Collection[Code]) -> dict[Code, Size]:
        """How much there is of each."""

    def next_text(self) -> int:
        """A number above those of all texts."""


class NewText(NamedTuple):
    """A text that came: its number, the id whose facts state it, and how it was said."""

    number: int
    place: Place
    words: Words


class Renewed(NamedTuple):
    """What is kept of an id now: its facts, what they come to, and the texts that they state; in
    which scopes they state it, and since when; and the ids that they fuse.
    """

    kept: Kept
    records: list[Record]
    texts: Mapping[str, Words]
    scopes: set[Scope]
    created: int
    sources: set[str]


@dataclass(slots=True)
class Changes:
    """What a batch changes. None: it goes."""

    logs: dict[Key, LogState] = field(default_factory=dict)
    erased: set[Key] = field(default_factory=set)
    """Logs of which nothing is kept any more but that they are erased."""
    taught: defaultdict[Key, dict[int, Taught | None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    kept: dict[Place, Renewed | None] = field(default_factory=dict)
    left: list[tuple[Place, Scope]] = field(default_factory=list)
    """Scopes in which an id states nothing any more."""
    parted: list[tuple[Place, str]] = field(default_factory=list)
    """Composites and ids that these do not fuse any more."""
    sizes: dict[Code, Size] = field(default_factory=dict)
    new_texts: list[NewText] = field(default_factory=list)
    gone_texts: list[int] = field(default_factory=list)
    next_text: int = 0


def changes_of(news: Sequence[News], there: KeptByKey) -> Changes:
    """What news change in what is there."""
    made = Changes(next_text=there.next_text())
    facts = [one for one in news if isinstance(one, Fact)]
    logs: dict[Key, LogState] = there.logs({one.log for one in news})
    touched = _take_back(
        [one for one in news if not isinstance(one, Fact | Used)], there, logs, made
    )
    purges: defaultdict[Place, dict[Scope, int]] = defaultdict(dict)
    for fact in facts:
        if isinstance(fact.data, MemoryDeleted) and fact.data.hard:
            own = purges[fact.log.tenant, fact.memory_id]
            own[fact.scope] = max(fact.at, own.get(fact.scope, fact.at))
    new: defaultdict[Place, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.log not in made.erased and not logs.get(fact.log, _NOTHING).erased:
            new[fact.log.tenant, fact.memory_id].append(fact)
    uses: defaultdict[Place, list[Use]] = defaultdict(list)
    for one in news:
        if isinstance(one, Used) and not logs.get(one.log, _NOTHING).erased:
            for name, *counts in one.counts:
                use = Use(str(one.log), one.offset, one.at, one.scope, *counts)
                uses[one.log.tenant, name].append(use)
            made.taught[one.log][one.offset] = Taught(tuple(name for name, *_ in one.counts))
    places = touched | new.keys() | purges.keys() | uses.keys()
    kept = there.kept(places)
    known = {place: (kept[place].all() if place in kept else {}) for place in places}
    named = {log for own in known.values() for log, _ in own}
    named |= {_key(use.log) for own in kept.values() for use in own.uses}
    logs |= there.logs(named - logs.keys() - made.erased)
    sizes: dict[Code, Size] = {}
    for place in sorted(places):
        before = kept.get(place, _EMPTY)
        news_of = _NewsOf(known[place], new[place], purges[place], uses[place])
        _renew(made, logs, sizes, place, before, news_of)
    _resize(made, there, sizes)
    return made


class _NewsOf(NamedTuple):
    """What was known of an id, and what comes."""

    known: Mapping[tuple[Key, int], Fact]
    facts: Sequence[Fact]
    purges: Mapping[Scope, int]
    uses: Sequence[Use]


def _key(log: str) -> Key:
    tenant, _, conversation = log.partition("/")
    return Key(tenant, conversation)


_NOTHING, _EMPTY = LogState(), Kept()


def _take_back(
    news: Iterable[WentBack | Dropped | LogErased],
    there: KeptByKey,
    logs: dict[Key, LogState],
    made: Changes,
) -> set[Place]:
    """Note rollbacks, dropped events and erasures; returns whom they touch."""
    news = [one for one in news if not logs.get(one.log, _NOTHING).erased]
    for one in news:
        state = made.logs.setdefault(one.log, logs.setdefault(one.log, LogState()))
        if isinstance(one, WentBack):
            state.rollbacks[one.by] = one.to, one.at
        elif isinstance(one, Dropped):
            state.dropped.add(one.offset)
        else:
            made.erased.add(one.log)
    for log in made.erased:
        # That it is erased stays: what comes late changes nothing.
        made.logs[log] = logs[log] = LogState(erased=True)
    taught = there.taught({one.log for one in news})
    return {
        (log.tenant, memory_id)
        for log, events in taught.items()
        for one in events.values()
        for memory_id in one.memory_ids
    }


def _renew(
    made: Changes,
    logs: dict[Key, LogState],
    sizes: dict[Code, Size],
    place: Place,
    before: Kept,
    news: _NewsOf,
) -> None:
    """Bring one id's facts, its records and texts up to date."""
    known, purged = news.known, dict(before.purged)
    for scope, at in news.purges.items():
        purged[scope] = max(at, purged.get(scope, at))
    facts = _standing(made, logs, news, purged)
    was, now = texts_of(known.values()), texts_of(facts.values())
    _count(sizes, was.values(), -1)
    _count(sizes, now.values(), 1)
    stated = [fact for fact in facts.values() if states(fact)]
    scopes = {fact.scope for fact in stated}
    left = {fact.scope for fact in known.values() if states(fact)} - scopes
    made.left += [(place, scope) for scope in left]
    sources = sources_of(facts.values())
    made.parted += [(place, source) for source in sources_of(known.values()) - sources]
    uses = {(one.log, one.offset, one.scope): one for one in (*before.uses, *news.uses)}
    erased = {str(log) for log in made.erased}
    counted = [one for one in uses.values() if one.log not in erased]
    if not facts and not purged and not counted:
        made.kept[place] = None
        made.gone_texts += before.texts.values()
        return
    kept = kept_of(facts.values(), purged, _numbers(made, place, before, now), counted)
    made.kept[place] = Renewed(
        kept,
        resolved(facts.values(), counted, logs),
        now,
        scopes,
        min((fact.at for fact in stated), default=0),
        sources,
    )


def _standing(
    made: Changes, logs: dict[Key, LogState], news: _NewsOf, purged: Mapping[Scope, int]
) -> dict[tuple[Key, int], Fact]:
    """The facts of an id that are neither erased nor deleted for good."""
    found: dict[tuple[Key, int], Fact] = {}
    for fact in (*news.known.values(), *news.facts):
        at = fact.log, fact.offset
        if fact.log in made.erased:
            continue
        if states(fact) and fact.at <= purged.get(fact.scope, fact.at - 1):
            # What is deleted for good stays away, whichever comes first; nor are the events
            # recalled that taught it.
            if at in news.known:
                made.taught[fact.log][fact.offset] = None
            _hide(made, logs, fact)
            continue
        found[at] = fact
        if at not in news.known:
            learnt_from = () if is_fused(fact) else fact.learnt_from
            made.taught[fact.log][fact.offset] = Taught((fact.memory_id,), learnt_from)
    return found


def _numbers(made: Changes, place: Place, before: Kept, now: Mapping[str, Words]) -> dict[str, int]:
    """The numbers of an id's texts; new texts get new ones."""
    made.gone_texts += [number for text, number in before.texts.items() if text not in now]
    numbers = {text: number for text, number in before.texts.items() if text in now}
    for text, words in now.items():
        if text not in numbers:
            numbers[text] = made.next_text
            made.new_texts.append(NewText(made.next_text, place, words))
            made.next_text += 1
    return numbers


def _hide(made: Changes, logs: dict[Key, LogState], fact: Fact) -> None:
    if fact.learnt_from:
        state = made.logs.setdefault(fact.log, logs.setdefault(fact.log, LogState()))
        state.hidden.update(fact.learnt_from)


def _count(sizes: dict[Code, Size], texts: Iterable[Words], sign: int) -> None:
    for code, (count, words) in sizes_of(texts).items():
        before = sizes.get(code, (0, 0))
        sizes[code] = before[0] + sign * count, before[1] + sign * words


def _resize(made: Changes, there: KeptByKey, sizes: Mapping[Code, Size]) -> None:
    changed = {code: size for code, size in sizes.items() if size != (0, 0)}
    before = there.sizes(changed)
    for code, (count, words) in changed.items():
        was = before.get(code, (0, 0))
        made.sizes[code] = was[0] + count, was[1] + words
