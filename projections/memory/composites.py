"""What a composite says: what its sources say, those of them that stand.

An event that fuses names records and has no text of theirs. So a composite has a source's new text
once that changes, and none of it once the source is rolled back, corrected, deleted or erased, in
whichever log it stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from projections.events.times import parse_micros
from projections.memory.identity import normalize
from projections.memory.resolution import TAGS, TRUST, Record
from projections.names import parse_position

FEWEST = 2
"""Sources of a composite."""
MOST_ENTITIES = 16


def composed(composite: Record, sources: Iterable[Record | None]) -> Record | None:
    """A composite as its sources make it; None where fewer than two of them stand.

    It is trusted as the least of them. It holds while all of them do; it is of a time or of a
    conversation if all of them are of the same.

    Args:
        composite: what its own facts come to.
        sources: what its ``sources`` are now, of its scope.
    """
    standing = sorted(
        (one for one in sources if one is not None and one.kind == "record" and one.stands),
        key=lambda one: (one.created, one.id),
    )
    if len(standing) < FEWEST:
        return None
    text = " ".join(one.text for one in standing)
    conversation = _same(one.conversation for one in standing)
    places = () if conversation is None else (at for one in standing for at in one.positions)
    return structs.replace(
        composite,
        text=text,
        normalized_text=normalize(text),
        trust=min((one.trust for one in standing), key=TRUST.__getitem__),
        role=_same(one.role for one in standing),
        confirmed_at=max(one.confirmed_at for one in standing),
        sources=[one.id for one in standing],
        conversation=conversation,
        entities=list(dict.fromkeys(name for one in standing for name in one.entities))[
            :MOST_ENTITIES
        ],
        tags=_tags(standing),
        temporal=_temporal(standing),
        confidence=round(sum(one.confidence for one in standing) / len(standing), 3),
        positions=sorted(set(places), key=parse_position),
    )


def _same(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _tags(standing: Sequence[Record]) -> dict[str, list[str]]:
    merged = {
        kind: list(dict.fromkeys(tag for one in standing for tag in one.tags.get(kind, ())))
        for kind in TAGS
    }
    return {kind: tags for kind, tags in merged.items() if tags}


def _temporal(standing: Sequence[Record]) -> dict[str, str]:
    about = _same(one.temporal.get("t_ref") for one in standing)
    begins = _times(standing, "t_valid_from")
    ends = _times(standing, "t_valid_to")
    never = bool(begins and ends) and max(begins) > min(ends)
    found = {
        "t_ref": about,
        # What never held all together is over with the first of them.
        "t_valid_from": begins[max(begins)] if begins and not never else None,
        "t_valid_to": ends[min(ends)] if ends else None,
    }
    return {name: time for name, time in found.items() if time is not None}


def _times(standing: Sequence[Record], name: str) -> dict[int, str]:
    """Their times of one name, by the instant."""
    times = sorted({one.temporal[name] for one in standing if name in one.temporal})
    return {at: time for time in times if (at := parse_micros(time)) is not None}
