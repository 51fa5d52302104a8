"""Fusion: records of one span that say much the same become a composite, which ranks above them.

Two records belong together if they have one type and the stems of their texts are alike
(:mod:`projections.memory.similarity`) by more than :data:`ALIKE`; what is alike by way of others,
too. So a cluster depends on which records there are, and not on their order. The same words are one
record already.

Only records of one log are fused: with the log's rollbacks and erasure all of a composite goes.
Records with a topic are not: their value may change, and a composite would keep the former one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from projections.events.memories import MemoryTags
from projections.memory.extraction.candidate import Candidate
from projections.memory.similarity import similarity, stems

ALIKE = 0.75
"""Above it two records are of one cluster."""
FEWEST = 2
MOST = 8
"""Records of one composite; a cluster of more is no single thing."""
CONSIDERED = 400
"""Records of a span, the latest, that are compared with each other."""
Likeness = Callable[[str, str], float]
_TRUST = ("tool", "model", "user")


def clusters(
    candidates: Sequence[Candidate], likeness: Likeness | None = None
) -> list[list[Candidate]]:
    """The clusters among candidates, each in the order of its events.

    Args:
        likeness: of two texts, 0.0 to 1.0; None: by their stems. Where there are vectors, their
            cosine stands here.
    """
    latest: dict[tuple[str, str], Candidate] = {}
    for one in sorted(candidates, key=_place):
        if one.topic is None:
            latest[one.memory_type, one.text] = one
    found = sorted(latest.values(), key=_place)[-CONSIDERED:]
    words = [stems(one.text) for one in found]
    cluster_of = list(range(len(found)))
    for i, one in enumerate(found):
        for j in range(i):
            other = found[j]
            if one.memory_type != other.memory_type or cluster_of[i] == cluster_of[j]:
                continue
            alike = (
                similarity(words[i], words[j])
                if likeness is None
                else likeness(one.text, other.text)
            )
            if alike > ALIKE:
                gone, stays = sorted((cluster_of[i], cluster_of[j]), reverse=True)
                cluster_of = [stays if each == gone else each for each in cluster_of]
    grouped: dict[int, list[Candidate]] = {}
    for one, cluster in zip(found, cluster_of, strict=True):
        grouped.setdefault(cluster, []).append(one)
    return [group for group in grouped.values() if FEWEST <= len(group) <= MOST]


def composite(sources: Sequence[Candidate]) -> Candidate:
    """What a cluster comes to: all that its records say, with the least of their trust."""
    last = sources[-1]
    return Candidate(
        memory_type=last.memory_type,
        text=" ".join(one.text for one in sources),
        offsets=tuple(sorted({offset for one in sources for offset in one.offsets})),
        time=last.time,
        role=last.role,
        trust=min((one.trust for one in sources), key=_TRUST.index),
        confidence=round(sum(one.confidence for one in sources) / len(sources), 3),
        entities=tuple(dict.fromkeys(name for one in sources for name in one.entities))[:16],
        tags=_tags(sources),
    )


def _place(one: Candidate) -> tuple[tuple[int, ...], str]:
    return one.offsets[::-1], one.text


def _tags(sources: Sequence[Candidate]) -> MemoryTags:
    merged = {
        name: list(dict.fromkeys(tag for one in sources for tag in getattr(one.tags, name)))
        for name in MemoryTags.__struct_fields__
    }
    return MemoryTags(**merged)
