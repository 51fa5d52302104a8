"""A conversation that is folded as it is said, and summarised by the compactor when it is asked to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.apply import Outcome
from projections.fold.replay import Logged, apply_with_log
from projections.names import Position
from projections.policy.policy import Callables, Rules
from projections.render.render import render_openai
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.log.log import Raw
from streams.settings.settings import Settings
from tests.support.compaction import Terse
from tests.support.mirror import KEY, Mirror
from threadfold.testing.memory_log import MemoryLog

SMALL: dict[str, Any] = {"working_budget": 300, "keep_recent_tokens": 10, "min_messages": 2}


class Talk:
    """A conversation in a log in memory, folded as it comes; the compactor answers its requests."""

    def __init__(
        self,
        policy: dict[str, Any],
        *,
        callables: Callables | None = None,
        input_tokens: int = 100_000,
    ) -> None:
        self.rules = Rules(policy, callables=callables)
        self.window, self.mirror = Window(KEY, 0, self.rules), Mirror()
        self.messages = MemoryLog(1)
        self.log: list[Logged] = []
        self.compactor = Compactor(
            Settings(summary_input_tokens=input_tokens), self.messages, lambda _: Terse()
        )

    def say(self, kind: str, /, **fields: Any) -> int:
        """Append an event; returns its offset."""
        flat = {"type": kind, **fields}
        record = make_record(
            KEY,
            flat,
            where="talk",
            now="2026-01-01T00:00:00Z",
            new_id=f"e{len(self.log)}",
            operator=True,
        )
        offset = self.messages.put(0, str(KEY).encode(), record.value).offset
        self.fold(offset, record.value)
        return offset

    def fold(self, offset: int, value: bytes) -> Outcome:
        """Fold what stands at an offset of the log."""
        event = decode_event(value)
        outcome = apply_with_log(self.window, offset, event, self.log)
        self.log.append((offset, event))
        self.mirror.write(self.window)
        return outcome

    def call(self, *ids: str, arguments: str = "{}") -> int:
        """An assistant's message with calls."""
        calls = [{"id": id_, "name": "look", "arguments": arguments} for id_ in ids]
        return self.say("message", role="assistant", content=None, tool_calls=calls)

    def chat(self, turns: int) -> list[int]:
        """Users and assistants in turns; returns the users' offsets."""
        found = []
        for _ in range(turns):
            found.append(self.say("message", role="user", content="word " * 20))
            self.say("message", role="assistant", content="reply " * 20)
        return found

    async def summarise(self) -> Outcome:
        """Have the request that stands answered, and fold the answer."""
        request = request_for(self.window, 1)
        assert request is not None
        position = await self.compactor.answer(request)
        raw = (await self.messages.read([position]))[position]
        return self.fold(position.offset, raw.value or b"")

    def text(self) -> str:
        return render_openai(self.window).messages.decode()


class CutLog(MemoryLog):
    """A talk's log without its first records."""

    def __init__(self, log: MemoryLog, begin: int) -> None:
        super().__init__(1)
        self._begin = begin
        for row in log.rows(0):
            self.put(0, row.key, row.value)

    async def beginning_offsets(self) -> dict[int, int]:
        return {0: self._begin}

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        return await super().read([one for one in positions if one.offset >= self._begin])
