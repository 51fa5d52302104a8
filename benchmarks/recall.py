"""Figure `recall`: how often a search of the long-term memory finds what was said.

The set (``support.recall_set``) has real chat with planted facts; what the rules learn of it stands
in the memory store, and all of it in the index of turns. ``ours`` is the share of questions whose
answer is among the first five results, over the questions that have one, of the part ``test``,
which no rule or weight was tuned on. The peers are the channels alone, by their own order:
``records`` and ``turns`` by their words, ``text`` of both, ``vectors`` where a model is prepared.
The table has both parts, by words alone and with vectors, by stratum and by what a question has in
common with the statement.

``--dialogues FILE`` adds long dialogues that the repository does not have
(``support.dialogues``): their turns alone, and with what the rules learn of them, by words alone
and, where a model is prepared, with vectors. ``mrr`` is that of all results a search can be asked
for, ``mrr@10`` that of the ten it returns by default.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, rounded, say
from benchmarks.support.dialogues import dialogue_sets
from benchmarks.support.recall_set import NOW, TENANT, Question, RecallSet, make_set
from projections.events.times import micros_of
from projections.memory.background import background
from projections.memory.news import Fact
from projections.memory.raw_turns import Turn
from projections.memory.recall import Recalled, joined
from streams.embeddings.registry import Embeddings
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from streams.memory.turns import SqliteTurns
from streams.memory.vectors import MemoryVectors
from streams.settings.settings import Settings
from threadfold.service import question as to_ask
from threadfold.service import recall
from threadfold.service.lists import MAX_LISTED

FIVE, TEN = 5, 10
BY_MEANING = "vectors"
Ranking = Sequence[Recalled]
KINDS: Mapping[str, Collection[str]] = {
    "records": ("record",),
    "turns": ("turn",),
    "text": ("record", "turn"),
}
"""What is searched by words alone."""
OF_DIALOGUES: Mapping[str, Collection[str]] = {"turns": ("turn",), "all": ("record", "turn")}
"""What is searched in dialogues."""


class Recall:
    """The share of questions that are answered among the first five results."""

    name = "recall"
    goal = "fused beats each channel alone; nothing leaked, nothing stale"

    async def run(self, args: Args) -> Result:
        """Ask all questions of every side. The same every time, so one round says all."""
        users = 4 if args.quick else None
        table: dict[str, Any] = {}
        test: Mapping[str, Tally] = {}
        for part in ("train", "test"):
            made = make_set(part, users)
            say(f"{part}: {made.facts} facts in {made.turns} messages")
            for way in _ways():
                test = await tallies(made, meaning=way == BY_MEANING)
                documents = {name: tally.document() for name, tally in test.items()}
                table[f"{part}, {way}"] = documents

        def side(name: str) -> Measured:
            return Measured(test[name].recall)

        if args.dialogues is not None:
            table["dialogues"] = await _of_dialogues(args.dialogues)
        sides = {"ours" if name == "fused" else name: partial(side, name) for name in test}
        rounds = await interleave(sides, 1)
        parameters = {"users": users, "asked_at": NOW.isoformat()}
        return rounds.result(self.name, "recall@5", parameters, more={"table": table})


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, where its first answer stood (``rank`` from 1 on, 0 for nowhere), and the share
    of its answers among the first five.
    """

    question: Question
    rank: int
    share: float
    leaked: bool
    stale: bool
    background: bool


class Tally:
    """What one side made of all questions."""

    def __init__(self, asked: Iterable[Asked]) -> None:
        self.asked = list(asked)

    @property
    def recall(self) -> float:
        """The share of a question's answers that are among the first five: most have one."""
        return fmean(one.share for one in self._answerable)

    @property
    def mrr(self) -> float:
        """The mean of one over the first answer's rank, within what was judged."""
        return fmean(1 / one.rank if one.rank else 0.0 for one in self._answerable)

    @property
    def leaked(self) -> int:
        """Questions that were shown what they must not be."""
        return sum(one.leaked for one in self.asked)

    @property
    def stale(self) -> int:
        """Questions whose former answer stood before the present one."""
        return sum(one.stale for one in self.asked)

    @property
    def _answerable(self) -> list[Asked]:
        return [one for one in self.asked if one.question.right]

    def document(self) -> dict[str, Any]:
        """All of it, by stratum and nearness."""
        groups: defaultdict[str, list[Asked]] = defaultdict(list)
        for one in self._answerable:
            groups[one.question.stratum].append(one)
            groups[one.question.nearness].append(one)
        unanswerable = [one for one in self.asked if not one.question.right]
        return {
            "recall@5": rounded(self.recall),
            "mrr": rounded(self.mrr),
            "leaked": self.leaked,
            "stale": self.stale,
            "background": rounded(fmean(one.background for one in self._answerable)),
            "background_of_unanswerable": rounded(fmean(one.background for one in unanswerable)),
            "groups": {
                name: [rounded(Tally(group).recall), rounded(Tally(group).mrr)]
                for name, group in groups.items()
            },
        }


async def tallies(made: RecallSet, *, meaning: bool = True) -> dict[str, Tally]:
    """What each channel and all of them together make of a set's questions."""
    found: dict[str, list[Asked]] = defaultdict(list)
    async with _asking(made, meaning=meaning) as asks:
        for question in made.questions:
            for name, ranking in (await _rankings(asks, made, question)).items():
                found[name].append(judged(question, ranking))
    return {name: Tally(asked) for name, asked in found.items()}


async def _of_dialogues(path: Path) -> dict[str, Any]:
    sets = dialogue_sets(path)
    table: dict[str, Any] = {
        "turns": sum(made.turns for made in sets),
        "records": sum(isinstance(one, Fact) for made in sets for one in made.news),
        "questions": sum(len(made.questions) for made in sets),
    }
    for way in _ways():
        found: dict[str, list[Asked]] = defaultdict(list)
        of_all: dict[str, list[Asked]] = defaultdict(list)
        for made in sets:
            async with _asking(made, meaning=way == BY_MEANING) as asks:
                for question, (name, kinds) in product(made.questions, OF_DIALOGUES.items()):
                    asked = replace(_asked(made, question), kinds=kinds)
                    found[name].append(judged(question, (await asks.ask(asked)).found))
                    answer = await asks.ask(replace(asked, limit=MAX_LISTED))
                    of_all[name].append(judged(question, answer.found, MAX_LISTED))
        for name, first in found.items():
            tally = Tally(first)
            table[f"{name}, {way}"] = {
                "recall@5": rounded(tally.recall),
                "mrr@10": rounded(tally.mrr),
                "mrr": rounded(Tally(of_all[name]).mrr),
            }
    return table


def _ways() -> list[str]:
    """By words alone, and with vectors where a model is prepared."""
    prepared = Embeddings(_settings(meaning=True)).current is not None
    return ["words", BY_MEANING] if prepared else ["words"]


@asynccontextmanager
async def _asking(made: RecallSet, *, meaning: bool) -> AsyncIterator[recall.Recall]:
    """Searches of a set, once all of it can be found."""
    store, turns = SqliteMemories(), SqliteTurns()
    turns.apply(made.said, {})
    store.apply(made.news, {})
    embeddings = Embeddings(_settings(meaning=meaning))
    near = far = None
    try:
        if embeddings.current is not None:
            near = MemoryVectors(store.vectors, embeddings)
            far = MemoryVectors(turns.vectors, embeddings)
            await _made(near, far)
        yield recall.Recall(store, turns, None, near, turn_vectors=far)
    finally:
        for vectors in (near, far):
            if vectors is not None:
                await vectors.stop()
        store.close()
        turns.close()


def _settings(*, meaning: bool) -> Settings:
    return Settings.load(memory_embeddings="minilm" if meaning else "")


async def _made(*all_: MemoryVectors[Any]) -> None:
    begin = time.perf_counter()
    for vectors in all_:
        vectors.start()
    while not all(vectors.ready for vectors in all_):
        if reason := "".join(vectors.reason for vectors in all_):
            raise RuntimeError(reason)
        await asyncio.sleep(0.1)
    made = sum(vectors.made for vectors in all_)
    say(f"{made} vectors in {time.perf_counter() - begin:.0f} s")


def _asked(made: RecallSet, question: Question) -> to_ask.Question:
    only = Filter(TENANT, user=question.user, as_of=micros_of(made.asked_at))
    return to_ask.Question(only, question.text)


async def _rankings(asks: recall.Recall, made: RecallSet, question: Question) -> dict[str, Ranking]:
    asked = _asked(made, question)
    answer = await asks.ask(asked)
    rankings: dict[str, Ranking] = {}
    for name, kinds in KINDS.items():
        channels, _ = await asks.channels(replace(asked, kinds=kinds), micros_of(made.asked_at))
        words = [(channel, hits) for channel, hits in channels if channel == "text"]
        rankings[name] = sorted(joined(words), key=lambda one: -one.fit)
        vectors = [(channel, hits) for channel, hits in channels if channel == "vectors"]
        if name == "text" and vectors:
            rankings["vectors"] = sorted(joined(vectors), key=lambda one: -(one.cosine or 0.0))
    return {"fused": answer.found, **rankings}


def judged(question: Question, ranking: Ranking, most: int = TEN) -> Asked:
    """Where the answer stands in the first ``most`` results."""
    first = [_places(one) for one in ranking[:most]]
    rank = next((n for n, places in enumerate(first, 1) if places & question.right), 0)
    shown = frozenset().union(*first[:FIVE])
    former = next((n for n, places in enumerate(first, 1) if places & question.former), 0)
    return Asked(
        question,
        rank,
        len(shown & question.right) / len(question.right) if question.right else 0.0,
        any(places & question.forbidden for places in first)
        or any(
            (one.found.scope.tenant, one.found.scope.user) != (TENANT, question.user)
            for one in ranking
        ),
        former > 0 and (rank == 0 or former < rank),
        background(list(ranking[:TEN]), 800) is not None,
    )


def _places(one: Recalled) -> frozenset[str]:
    """The positions of the events that a result says again."""
    if isinstance(one.found, Turn):
        return frozenset((one.found.position,))
    return frozenset(one.found.positions)


FIGURE = Recall()
