"""What is read of a store that is kept by key, whichever holds its rows: what ids come to now or at
a time, with the sources of composites, and which turns were superseded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import structs

from projections.memory.composites import composed
from projections.memory.resolution import Record
from projections.names import Key
from streams.memory.erasures import Erased
from streams.memory.kept import Kept, Place, resolved, text_of
from streams.memory.key_changes import KeptByKey
from streams.memory.store import Filter

records_of = msgspec.msgpack.Decoder(list[Record]).decode
kept_from = msgspec.msgpack.Decoder(Kept).decode


class ReadsByKey(KeptByKey, Protocol):
    """One look at a store's rows."""

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the topic the offset of the last record that was taken in."""

    def records(self, places: Sequence[Place]) -> list[list[Record]]:
        """What ids come to now, in their order."""

    def fusing(self, places: Collection[Place]) -> set[Place]:
        """The composites that some of these ids are sources of."""

    def by_time(
        self, tenant: str, user: str | None, after: tuple[int, str] | None, *, older: bool
    ) -> Iterator[list[tuple[int, str]]]:
        """What a tenant has, or a user, by time, as ``(created, id)``, a page at a time, from
        behind such a place on. What comes or goes meanwhile may be missing, nothing comes twice.
        """

    def tenants(self) -> Iterable[str]:
        """The tenants that there are."""


def known_at(
    there: ReadsByKey, kept: Iterable[Kept], as_of: int | None, erased: Erased = None
) -> list[list[Record]]:
    """What facts came to at a time, without those of erased logs."""
    kept = list(kept)
    facts = [
        [fact for fact in one.all().values() if erased is None or not erased(fact.log)]
        for one in kept
    ]
    uses = {Key(*use.log.split("/", 1)) for one in kept for use in one.uses}
    logs = there.logs({fact.log for own in facts for fact in own} | uses)
    return [resolved(own, one.uses, logs, as_of) for own, one in zip(facts, kept, strict=True)]


def records_at(
    there: ReadsByKey, places: Sequence[Place], as_of: int | None, erased: Erased = None
) -> list[list[Record]]:
    """What ids come to, now or at a time, without what erased logs say."""
    now = as_of is None
    found = there.records(places) if now else known_at(there, _kept(there, places), as_of)
    return without_erased(there, found, as_of, erased)


def without_erased(
    there: ReadsByKey, found: Sequence[list[Record]], as_of: int | None, erased: Erased
) -> list[list[Record]]:
    """What ids come to, those anew that show what an erased log says."""
    left = list(found)
    if erased is None:
        return left
    anew = [i for i, own in enumerate(left) if any(erased(one.log) for one in own)]
    if not anew:
        return left
    kept = _kept(there, [(left[i][0].scope.tenant, left[i][0].id) for i in anew])
    for i, records in zip(anew, known_at(there, kept, as_of, erased), strict=True):
        # Lists and their cursors go by the time that is stored.
        created = {one.scope: one.created for one in left[i]}
        left[i] = [
            structs.replace(one, created=created.get(one.scope, one.created)) for one in records
        ]
    return left


def _kept(there: ReadsByKey, places: Sequence[Place]) -> list[Kept]:
    kept = there.kept(list(dict.fromkeys(places)))
    return [kept.get(place, Kept()) for place in places]


def seen(there: ReadsByKey, only: Filter, places: Sequence[Place]) -> Iterator[Record]:
    """The records of ids that a filter admits, as of its time; composites with what their sources
    say.
    """
    found = [one for own in records_at(there, places, only.as_of, only.erased) for one in own]
    yield from filter(only.admits, with_sources(there, found, only.as_of, only.erased))


def with_sources(
    there: ReadsByKey, records: Sequence[Record], as_of: int | None, erased: Erased = None
) -> Iterator[Record]:
    """Records, and composites as their sources make them, without what erased logs say."""
    whole = [one for one in records if one.kind == "composite"]
    places = [(one.scope.tenant, source) for one in whole for source in one.sources]
    places = list(dict.fromkeys(places))
    made_of = records_at(there, places, as_of, erased) if places else []
    sources = dict(zip(places, made_of, strict=True))
    for one in records:
        made: Record | None = one
        if one.kind == "composite":
            own = [source for name in one.sources for source in sources[one.scope.tenant, name]]
            made = composed(one, [source for source in own if source.scope == one.scope])
        if made is not None:
            yield made


def superseded_from(
    there: ReadsByKey, asked: Mapping[Key, Collection[int]], as_of: int | None
) -> set[tuple[Key, int]]:
    """Those of logs' events that taught what no longer stands: its record expired, says another
    text by now, or was deleted for good.
    """
    logs = there.logs(asked)
    found = {
        (log, offset) for log, state in logs.items() for offset in state.hidden & {*asked[log]}
    }
    taught = [
        (log, offset, memory_id)
        for log, events in there.taught(asked).items()
        for offset, one in events.items()
        if not set(asked[log]).isdisjoint(one.learnt_from)
        for memory_id in one.memory_ids
    ]
    places = list(dict.fromkeys((log.tenant, memory_id) for log, _, memory_id in taught))
    kept = {place: one.all() for place, one in there.kept(places).items()}
    records = dict(zip(places, records_at(there, places, as_of), strict=True))
    branches = {log: state.branches(as_of) for log, state in logs.items()}
    for log, offset, memory_id in taught:
        place = log.tenant, memory_id
        fact = kept.get(place, {}).get((log, offset))
        if fact is None or (as_of is not None and fact.at > as_of):
            continue
        if log in branches and not branches[log].stands(fact.anchor):
            continue
        for record in records[place]:
            if not record.stands or text_of(fact) != record.normalized_text:
                found.update((log, one) for one in {*asked[log]}.intersection(fact.learnt_from))
    return found
