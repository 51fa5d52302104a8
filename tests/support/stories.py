"""A conversation told step by step: short ways to say something, and to see what became of it."""

from __future__ import annotations

import json
from typing import Any

from projections.events import types as events
from projections.fold.apply import Status
from projections.fold.replay import replay
from projections.policy.policy import Rules
from projections.render.render import Render, render_openai
from projections.window.entry import Entry
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES
from tests.support.talks import Talks, random_talks

WIDE: dict[str, Any] = {
    "compaction_ratio": 1.0,
    "low_water": 0.5,
    "protect_recent": 0,
    "summary_max_tokens": 200,
}
"""A policy without triggers of its own, for tests that set their own marks."""


class Story:
    """One conversation; offsets are 0, 1, 2, … and each step tells its own."""

    def __init__(self, policy: dict[str, Any] | None = None, rules: Rules | None = None) -> None:
        self.rules = rules if rules is not None else Rules({**RULES.deployment, **(policy or {})})
        self.talks: Talks = random_talks(0, 0, PARTITION, [KEY], rules=self.rules)

    @property
    def window(self) -> Window:
        return self.talks.windows[KEY]

    def say(self, data: object, tokens: int | None = None) -> int:
        assert self.talks.say(KEY, data, tokens=tokens) is Status.APPLIED
        return self.talks.next_offset - 1

    def user(self, text: str = "a question", tokens: int | None = None) -> int:
        return self.say(events.Message("user", text), tokens)

    def assistant(self, text: str = "an answer", tokens: int | None = None) -> int:
        return self.say(events.Message("assistant", text), tokens)

    def call(
        self,
        *ids: str,
        text: str | None = None,
        tool: str = "look",
        arguments: str = "{}",
        tokens: int | None = None,
    ) -> int:
        calls = [events.ToolCall(id_, tool, arguments) for id_ in ids]
        return self.say(events.Message("assistant", text, tool_calls=calls), tokens)

    def result(
        self, id_: str, text: str = "found", *, pinned: bool = False, tokens: int | None = None
    ) -> int:
        return self.say(events.ToolResult(id_, text, pinned=pinned), tokens)

    def summarise(self) -> None:
        assert self.talks.summarise(KEY) is Status.APPLIED

    def back(self, offset: int) -> None:
        self.say(events.Rollback(f"{PARTITION}-{offset}"))

    def entry(self, offset: int) -> Entry:
        (found,) = [entry for entry in self.window.tail if entry.offset == offset]
        return found

    def form(self, offset: int) -> str:
        return self.entry(offset).variant

    def forms(self) -> dict[int, str]:
        """The entries that were shortened, with the form in force."""
        return {entry.offset: entry.variant for entry in self.window.tail if entry.variants}

    def text(self, offset: int) -> str:
        text = json.loads(self.entry(offset).body)["content"]
        assert isinstance(text, str)
        return text

    def render(self, max_tokens: int | None = None) -> Render:
        return render_openai(self.window, max_tokens)

    def messages(self, max_tokens: int | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.render(max_tokens).messages)
        return found

    def texts(self) -> list[str | None]:
        return [message["content"] for message in self.messages()]

    def assert_replays(self) -> None:
        """The log gives the same window again."""
        assert (
            replay(KEY, PARTITION, self.rules, self.talks.logs[KEY]).image() == self.window.image()
        )
