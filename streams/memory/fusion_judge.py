"""A model's judgement of what is fused and what supersedes, where one is configured.

The rules choose the records that may belong together; the model is asked once about all of them,
and can only take away from that, or say which of them a later one takes back. Without an answer of
use the rules decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from projections.events.times import time_at
from projections.memory.extraction.clauses import instructs
from projections.memory.fusion import (
    Cluster,
    Conflict,
    Near,
    Relations,
    Statement,
    cluster_of_records,
    counts_over,
)
from projections.names import Key
from streams.compaction.summarizers.chat_model import ChatModel, nothing_changed
from streams.compaction.summarizers.failures import AttemptFailed
from streams.compaction.summarizers.guarded import count_fallback
from streams.memory.model_questions import ModelQuestion, ask_model
from streams.metrics.declared import EXTRACTION_FALLBACKS
from streams.metrics.metrics import Metrics
from streams.runtime.log_fields import about

logger = logging.getLogger(__name__)

GROUPS = 20
"""Groups of one question; the rules decide about others."""
FUSION = ModelQuestion(
    kind="fusion",
    task="""\
You judge groups of records of an agent's long-term memory about one user: which records of a group
say one thing, and which of them a later record of the group takes back.""",
    lines='{"group", "record", "said" (its day), "text"}, group by group',
    answer="""\
{"groups": [{"group": its number,
  "same": the numbers of its records that say one thing; [] if none do,
  "outdated": the numbers of its records that are no longer true, because a later record of the
    group denies them or has another value; mostly []}]}
Records that speak of different things, persons or times do not say one thing.""",
    tokens=1_000,
)


class _Row(NamedTuple):
    """One record of a group, or a composite with its sources; ``statement`` is the record's."""

    text: str
    at: int
    sources: frozenset[str]
    statement: Statement | None = None


class _Group(NamedTuple):
    """What the rules found, and its records."""

    found: Cluster | Conflict
    rows: list[_Row]

    @property
    def may_be_sent(self) -> bool:
        """Whether no text of it instructs a model."""
        return not any(instructs(row.text) for row in self.rows)


class FusionJudge:
    """Asks the models of extraction."""

    def __init__(
        self, models: Mapping[str, ChatModel] | None = None, metrics: Metrics | None = None
    ) -> None:
        """Args: ``models`` by the names that requests have; others mean the rules."""
        self._models = models or {}
        self._metrics = metrics or Metrics()

    async def relations(
        self,
        name: str,
        key: Key,
        found: Relations,
        new: Sequence[Statement],
        near: Near,
        check: Callable[[], None] = nothing_changed,
    ) -> list[Relations]:
        """What is fused and what supersedes, of new records and what is near them: what the model
        says, and what the rules ``found`` of the rest. ``check`` as for ``ChatModel.ask``.
        """
        model = self._models.get(name)
        if model is None:
            return [found]
        groups = [one for one in _groups(found, new, near) if one.may_be_sent][:GROUPS]
        if not groups:
            return [found]
        rows = [
            {"group": g, "record": r, "said": time_at(row.at)[:10], "text": row.text}
            for g, group in enumerate(groups, 1)
            for r, row in enumerate(group.rows, 1)
        ]

        def read(answer: dict[str, Any]) -> list[Relations]:
            return _judged(answer, groups, found, {one.id for one in new}, near, model.model)

        try:
            return await ask_model(model, key.tenant, FUSION, rows, read, check=check)
        except AttemptFailed as error:
            logger.warning("%s; the rules fuse instead", error, extra=about(key))
            count_fallback(self._metrics, EXTRACTION_FALLBACKS, name, key.tenant, error)
            return [found]


def _groups(found: Relations, new: Sequence[Statement], near: Near) -> list[_Group]:
    """The records of each cluster and conflict, in the order of their times."""
    known = {one.id: one for several in near.statements.values() for one in several}
    known |= {one.id: one for one in new}
    inner = {one.id: one for one in near.composites}
    groups: list[_Group] = []
    for cluster in found.clusters:
        rows = [
            _Row(inner[name].text, inner[name].confirmed_at, frozenset(inner[name].sources))
            for name in cluster.children
        ]
        taken = {source for row in rows for source in row.sources}
        rows += [_row(known[one]) for one in cluster.sources if one not in taken and one in known]
        groups.append(_Group(cluster, sorted(rows, key=lambda row: (row.at, row.text))))
    groups += [_Group(conflict, [_row(one) for one in conflict]) for conflict in found.conflicts]
    return groups


def _row(one: Statement) -> _Row:
    return _Row(one.text, one.at, frozenset((one.id,)), one)


def _judged(
    answer: Mapping[str, Any],
    groups: Sequence[_Group],
    found: Relations,
    own: set[str],
    near: Near,
    model: str,
) -> list[Relations]:
    """What a model's answer says, and the rules of what it says nothing of. ``own`` are the ids of
    new records.

    Raises:
        ValueError: it does not have the form.
    """
    said = answer.get("groups")
    if not isinstance(said, list):
        raise ValueError("it has no list of groups")
    clusters, conflicts = set[Cluster](), set[Conflict]()
    judged = set[Cluster | Conflict]()
    for one in said:
        number = one.get("group") if isinstance(one, dict) else None
        if not isinstance(number, int) or not 1 <= number <= len(groups):
            raise ValueError("it names a group that was not asked about")
        rows = groups[number - 1].rows
        judged.add(groups[number - 1].found)
        outdated = _numbers(one.get("outdated"), rows)
        same = [row for row in _numbers(one.get("same"), rows) if row not in outdated]
        conflicts |= _taken_back(rows, outdated, own)
        sources = frozenset(source for row in same for source in row.sources)
        made = cluster_of_records(sources, near) if sources & own else None
        if made is not None:
            clusters.add(made)
    left = Relations(
        [one for one in found.conflicts if one not in judged],
        [one for one in found.clusters if one not in judged],
    )
    return [Relations(sorted(conflicts), sorted(clusters), model), left]


def _numbers(given: object, rows: Sequence[_Row]) -> list[_Row]:
    if not isinstance(given, list) or not all(
        isinstance(one, int) and 1 <= one <= len(rows) for one in given
    ):
        raise ValueError("it names a record that was not asked about")
    return [rows[one - 1] for one in sorted(set(given))]


def _taken_back(rows: Sequence[_Row], outdated: Sequence[_Row], own: set[str]) -> set[Conflict]:
    """The conflicts of records with the latest of their group; one of both is new."""
    left = [row.statement for row in rows if row not in outdated and row.statement is not None]
    found = (
        Conflict(row.statement, left[-1])
        for row in outdated
        if row.statement is not None and left and counts_over(left[-1], row.statement)
    )
    return {one for one in found if {one.former.id, one.later.id} & own}
