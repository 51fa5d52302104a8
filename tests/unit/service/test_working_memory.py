"""The short view of one conversation asks for a summary at 70 %, and waits for it at 90 %."""

from __future__ import annotations

from typing import Any

import pytest

from projections.errors import ThreadfoldError, UnderMaintenance
from projections.events.validation import make_record
from projections.names import Key
from projections.window.window import Window
from streams.runtime.keyed_limit import KeyedLimit
from tests.support.compacted_talk import KEY, SMALL, Talk
from threadfold.service import working_memory as module
from threadfold.service.working_memory import working_memory


class Backend:
    """Serves the window of a talk. The summary that was asked for comes with the third look."""

    def __init__(self, talk: Talk) -> None:
        self.talk, self.asked, self.looks = talk, list[dict[str, Any]](), 0
        self.log = talk.messages
        self.away: ThreadfoldError | None = None
        self.turns_to_read, self.turns_to_render = KeyedLimit(2), KeyedLimit(1)

    async def window(self, tenant: str, conversation: str) -> Window:
        self.looks += 1
        if self.asked and self.looks == 3:
            await self.talk.summarise()
        return self.talk.window

    async def append(self, tenant: str, items: list[tuple[Key, dict[str, Any]]]) -> None:
        if self.away is not None:
            raise self.away
        self.asked += [flat for _, flat in items]
        flat = dict(items[0][1])
        self.talk.say(flat.pop("type"), **flat)


def full(share: float, **policy: Any) -> Backend:
    """A conversation whose messages have this share of what the working memory may have."""
    policy = {**SMALL, "working_budget": 100_000, **policy}
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
    assert again["threshold"] == "background" and len(backend.asked) == 1
    backend.talk.chat(1)
    backend.looks = 10  # the summary does not come
    await view(backend)
    assert len({one["id"] for one in backend.asked}) == 2, "once for each newest message"


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


async def test_it_waits_for_no_summary_that_cannot_come() -> None:
    away, none = full(0.91), full(0.91, compaction=False)
    away.away = UnderMaintenance("appends are stopped", "later")
    for backend in (away, none):
        found = await view(backend)
        assert (found["threshold"], len(found["raw_recent_turns"])) == ("before_answer", 20)
        assert backend.asked == [] and backend.looks == 2, "it looks, and makes what was said"


async def test_what_counts_no_more_is_not_among_the_last_messages() -> None:
    backend = full(0.91)
    talk, user = backend.talk, {"role": "user"}
    talk.say("message", content="the last but one", **user)
    last = talk.say("message", role="assistant", content="the last")
    talk.say("message", content="abandoned", **user)
    talk.say("rollback", to=f"0-{last}")
    refused = make_record(
        KEY,
        {"type": "message", "content": "refused", **user},
        where="talk",
        now="2026-01-01T00:00:00Z",
        new_id="refused",
    ).value.replace(b"{", b'{"expect":"0-0",', 1)
    talk.fold(talk.messages.put(0, str(KEY).encode(), refused).offset, refused)
    assert talk.log[-1][1].expect == "0-0"
    talk.say("message", role="system", content="a rule")
    await view(backend)
    found = await view(backend)
    assert found["compressed_history"]
    said = [one["content"].split()[0] for one in found["raw_recent_turns"]]
    contents = [one["content"] for one in found["raw_recent_turns"]]
    assert len(said) == 4 and contents[-2:] == ["the last but one", "the last"], contents
