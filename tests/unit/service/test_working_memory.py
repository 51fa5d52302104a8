"""The short view of one conversation asks for a summary at 70 %, and waits for it at 90 %."""

from __future__ import annotations

from typing import Any

import pytest

from projections.names import Key
from projections.window.window import Window
from streams.runtime.keyed_limit import KeyedLimit
from tests.support.compacted_talk import SMALL, Talk
from threadfold.service import working_memory as module
from threadfold.service.working_memory import working_memory


class Backend:
    """Serves the window of a talk. The summary that was asked for comes with the third look."""

    def __init__(self, talk: Talk) -> None:
        self.talk, self.asked, self.looks = talk, list[dict[str, Any]](), 0
        self.turns_to_read, self.turns_to_render = KeyedLimit(2), KeyedLimit(1)

    async def window(self, tenant: str, conversation: str) -> Window:
        self.looks += 1
        if self.asked and self.looks == 3:
            await self.talk.summarise()
        return self.talk.window

    async def append(self, tenant: str, items: list[tuple[Key, dict[str, Any]]]) -> None:
        self.asked += [flat for _, flat in items]
        self.talk.say(items[0][1]["type"])

    async def history(self, *where: str, limit: int, types: list[str]) -> dict[str, Any]:
        said = [event.data for _, event in self.talk.log if type(event).__name__ == "MessageEvent"]
        newest: list[Any] = said[: -limit - 1 : -1]
        return {"events": [{"role": one.role, "content": one.content} for one in newest]}


def full(share: float) -> Backend:
    """A conversation whose messages have this share of what the working memory may have."""
    policy = {**SMALL, "working_budget": 100_000}
    talk = Talk(policy)
    talk.chat(10)
    tokens = sum(entry.tokens for entry in talk.window.tail)
    talk = Talk({**policy, "wm_max_tokens": int(tokens / share)})
    talk.chat(10)
    return Backend(talk)


async def view(backend: Backend) -> dict[str, Any]:
    return await working_memory(backend, "acme", "c1")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.001)


async def test_below_70_percent_all_is_there_and_nothing_is_asked() -> None:
    backend = full(0.69)
    found = await view(backend)
    assert (found["threshold"], found["compressed_history"]) == ("none", "")
    assert len(found["raw_recent_turns"]) == 20 and backend.asked == []


async def test_from_70_percent_on_a_summary_is_asked_for_in_the_background() -> None:
    backend = full(0.71)
    found = await view(backend)
    assert (found["threshold"], found["compressed_history"]) == ("background", "")
    assert [one["type"] for one in backend.asked] == ["compaction.requested"]
    again = await view(backend)
    assert again["threshold"] == "background"
    assert backend.asked[0]["id"] == backend.asked[1]["id"], "the same request, which counts once"


async def test_from_90_percent_on_the_answer_waits_for_the_summary() -> None:
    backend = full(0.91)
    found = await view(backend)
    assert backend.looks == 3
    assert found["threshold"] == "none" and found["compressed_history"]
    said = [one["role"] for one in found["raw_recent_turns"]]
    assert said == ["user", "assistant", "user", "assistant"], "at least four are word for word"


async def test_it_waits_no_longer_than_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    backend = full(0.91)
    backend.looks = 10  # the summary does not come
    found = await view(backend)
    assert (found["threshold"], found["compressed_history"]) == ("before_answer", "")
    assert len(backend.asked) == 1
