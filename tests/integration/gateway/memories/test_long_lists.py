"""A long list of memories is checked where it holds up nobody."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from tests.support.memory_routes import World
from threadfold.service.drafts import Drafter
from threadfold.service.memories import MANY
from threadfold.service.saved_memories import Made, Save, drafted
from threadfold.service.spill import Drafts


def signed(drafter: Drafter, saves: Sequence[Save], seed: str | None) -> tuple[Made, Drafts]:
    """Drafts that say in which process they were made."""
    for _, _, _, data in saves:
        data.topic = f"{data.topic}-{os.getpid()}"
    return drafted(drafter, saves, seed)


@pytest.mark.parametrize("number", [MANY, MANY + 1])
async def test_a_long_list_of_saves_is_drafted_in_another_process(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("threadfold.service.memories.drafted", signed)
    texts = [f"Prefers tea number {i}." for i in range(number)]
    saves = [{"text": text, "topic": f"tea{i}", "user": user} for i, text in enumerate(texts)]
    answer = await world.ok("POST", "/memories?wait=applied", saves)
    assert [one["status"] for one in answer["memories"]] == ["created"] * number
    record = await world.ok("GET", f"/memories/{answer['memories'][-1]['id']}")
    topic, _, pid = record["topic"].rpartition("-")
    assert (record["text"], topic) == (texts[-1], f"tea{number - 1}")
    assert (int(pid) == os.getpid()) == (number <= MANY)


async def test_the_first_wrong_save_of_a_long_list_is_named(world: World, user: str) -> None:
    saves = [{"text": f"Prefers tea number {i}.", "user": user} for i in range(MANY + 10)]
    saves[30]["text"] = "<private>all of it</private>"
    answer = await world("POST", "/memories", saves)
    assert answer.status_code == 422 and "memory 31:" in answer.json()["detail"]
