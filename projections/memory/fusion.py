"""Which records say much the same, and which conflict.

Two records are alike if they have one type and the stems of their texts are alike
(:mod:`projections.memory.similarity`) by more than :data:`ALIKE`; where there are vectors, their
cosine counts. What is alike is fused, what is alike by way of others, too. So a cluster depends on
which records there are, and not on their order. The same words are one record already.

Two records conflict if they say the same, and one of them denies it. The later counts, unless it is
trusted less: what a tool answers takes nothing back that a user said.

Records with a topic are in neither: their topic says which of them counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from projections.memory.resolution import TRUST, Record
from projections.memory.similarity import is_denied, similarity, stems, undenied

ALIKE = 0.75
"""Above it two records are of one cluster."""
SAME = 0.85
"""Above it two texts say the same, but for a denial."""
MOST = 8
"""Records of one composite; a cluster of more is no single thing."""
CONSIDERED = 400
"""Records of a span, the latest, that are compared with each other and with others."""
Likeness = Callable[[str, str], float]


class Statement(NamedTuple):
    """A record that may be fused. ``at``: when it was said last, in microseconds since 1970;
    ``trust``: by whom.
    """

    id: str
    memory_type: str
    text: str
    at: int
    trust: str = "user"


class Near(NamedTuple):
    """What a memory has that may say the same as new records: by each new record's id those nearest
    to it, and the composites that have some of these as sources.
    """

    statements: Mapping[str, Sequence[Statement]] = {}
    composites: Sequence[Record] = ()
    likeness: Likeness | None = None


class Cluster(NamedTuple):
    """Records that become a composite, and the composites that it takes in."""

    sources: tuple[str, ...]
    children: tuple[str, ...]


class Conflict(NamedTuple):
    """Two records of which the later one counts."""

    former: Statement
    later: Statement


class Relations(NamedTuple):
    """Which of the latest records conflict, and which are fused. ``model`` judged it; None: the
    rules.
    """

    conflicts: Sequence[Conflict]
    clusters: Sequence[Cluster]
    model: str | None = None


NOTHING = Near()


def relations(new: Sequence[Statement], near: Near = NOTHING) -> Relations:
    """What the rules say of new records and of what is near them."""
    return Relations(conflicts(new, near), clusters(new, near))


def clusters(new: Iterable[Statement], near: Near = NOTHING) -> list[Cluster]:
    """The clusters that new records make, with each other and with what is there already. None has
    what a composite has that is there.
    """
    said = considered(new)
    cluster_of = {one.id: {one.id} for one in said}

    def join(one: str, other: str) -> None:
        mine, others = cluster_of[one], cluster_of.setdefault(other, {other})
        if mine is not others:
            mine |= others
            cluster_of.update(dict.fromkeys(others, mine))

    likeness = near.likeness or text_likeness
    for one, other in _pairs(said, near):
        if is_denied(one.text) == is_denied(other.text) and likeness(one.text, other.text) > ALIKE:
            join(one.id, other.id)
    composites = _composites(near)
    for leaves in composites.values():
        taken = [leaf for leaf in sorted(leaves) if leaf in cluster_of]
        for leaf in leaves if taken else ():
            join(taken[0], leaf)
    found = {frozenset(cluster_of[one.id]) for one in said}
    made = (cluster_of_records(group, near) for group in found)
    return sorted(one for one in made if one is not None)


def cluster_of_records(group: frozenset[str], near: Near) -> Cluster | None:
    """The cluster of these records; None for one, for too many, and where such a composite is there
    already.
    """
    composites = _composites(near)
    if not 2 <= len(group) <= MOST or group in composites.values():
        return None
    return Cluster(tuple(sorted(group)), _children(group, composites))


def conflicts(new: Iterable[Statement], near: Near = NOTHING) -> list[Conflict]:
    """The conflicts of new records, with each other and with what is there already."""
    found = (
        Conflict(*sorted(pair, key=lambda each: (each.at, each.id)))
        for pair in _pairs(considered(new), near)
        if is_denied(pair[0].text) != is_denied(pair[1].text)
        and text_likeness(pair[0].text, pair[1].text) > SAME
    )
    return [one for one in found if counts_over(one.later, one.former)]


def counts_over(later: Statement, former: Statement) -> bool:
    """Whether one record may supersede another: it is no older, and trusted no less."""
    return later.at >= former.at and TRUST[later.trust] >= TRUST[former.trust]


def considered(new: Iterable[Statement]) -> list[Statement]:
    """The latest of new records, each once."""
    latest: dict[str, Statement] = {}
    for one in sorted(new, key=lambda each: (each.at, each.text)):
        latest[one.id] = one
    return sorted(latest.values(), key=lambda each: (each.at, each.id))[-CONSIDERED:]


def _pairs(said: Sequence[Statement], near: Near) -> Iterator[tuple[Statement, Statement]]:
    """The pairs that may belong together."""
    own = {one.id for one in said}
    for i, one in enumerate(said):
        others = (other for other in near.statements.get(one.id, ()) if other.id not in own)
        for other in (*said[:i], *others):
            if one.memory_type == other.memory_type:
                yield one, other


def _composites(near: Near) -> dict[str, frozenset[str]]:
    return {one.id: frozenset(one.sources) for one in near.composites}


def _children(group: frozenset[str], composites: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The composites that a cluster takes in, without those that these have taken in."""
    within = {name: leaves for name, leaves in composites.items() if leaves <= group}
    return tuple(
        sorted(
            name
            for name, leaves in within.items()
            if not any(leaves < others for others in within.values())
        )
    )


def text_likeness(one: str, other: str) -> float:
    """How alike two texts are by their stems, whether they are denied or not."""
    return similarity(_stems(one), _stems(other))


@lru_cache(maxsize=4096)
def _stems(text: str) -> frozenset[str]:
    return stems(undenied(text))
