"""Reads and judges windows from outside, through the store, as any reader does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from projections.errors import ThreadfoldError
from projections.events import codec, token_cost
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint
from projections.window.bodies import to_flat
from projections.window.window import Window
from threadfold.demo.openai_checker import problems

FAR = 1 << 52
"""A time (ms) after every other: asks for all due conversations, whenever their request was sent.
"""


class PromiseBroken(ThreadfoldError):
    """Something happened that threadfold promises not to happen; the message says what."""

    exit_code = 1


def recount(messages: list[dict[str, Any]], encoding: str) -> int:
    """The tokens of the messages' text by the tokenizer, without tool schemas."""
    total = 0
    for i, message in enumerate(messages):
        flat = to_flat(message, f"message {i}")
        fields = {k: v for k, v in flat.items() if k not in ("type", "id", "time")}
        data = msgspec.convert(fields, codec.DATA_TYPES[flat["type"]])
        total += token_cost.measured(data, encoding).count
    return total


@dataclass(slots=True)
class Gauge:
    """What was last seen of one window, in tokens; ``share`` is the tail's share of its budget."""

    tail: int
    budget: int
    render: int
    ceiling: int

    @property
    def share(self) -> float:
        """The tail's tokens by its working budget; above 1.0 a summary is due."""
        return self.tail / self.budget


class Watch:
    """Reads the windows of ``keys`` in one generation and judges every render it makes of them.

    ``gauges`` holds what was last seen of each window, ``biggest`` the gauge with the biggest
    render by its ceiling so far, ``looks`` how many renders were judged.
    """

    def __init__(
        self, store: WindowStore, generation: int, partitions: int, rules: Rules, keys: list[Key]
    ) -> None:
        self.store = store
        self.generation = generation
        self.partitions = partitions
        self.rules = rules
        self.keys = {
            p: [key for key in keys if partition_of(key, partitions) == p]
            for p in range(partitions)
        }
        self.gauges: dict[Key, Gauge] = {}
        self.biggest: Gauge | None = None
        self.looks = 0
        self._next = 0

    async def checkpoints(self) -> list[Checkpoint | None]:
        """The checkpoint of each partition."""
        return [await self.store.checkpoint(self.generation, p) for p in range(self.partitions)]

    async def due(self) -> int:
        """How many windows wait for a summary."""
        return sum(
            [
                len(await self.store.due(self.generation, p, FAR, 1000))
                for p in range(self.partitions)
            ]
        )

    async def look(self) -> None:
        """Read and judge the windows of the next partition; call after call goes round all of them.

        Raises:
            PromiseBroken: a render is invalid or over its ceiling.
        """
        partition, self._next = self._next, (self._next + 1) % self.partitions
        for key, window in (await self.windows(partition)).items():
            self._judge(key, window)

    async def windows(self, partition: int) -> dict[Key, Window]:
        """The partition's windows that exist."""
        keys = self.keys[partition]
        _, stored = await self.store.read(self.generation, partition, keys)
        return {
            key: parts.load(key, partition, self.rules)
            for key, parts in zip(keys, stored, strict=True)
            if parts is not None
        }

    async def all_windows(self) -> dict[Key, Window]:
        """All windows that exist."""
        found: dict[Key, Window] = {}
        for partition in range(self.partitions):
            found.update(await self.windows(partition))
        return found

    def judge_exactly(self, windows: dict[Key, Window]) -> None:
        """Judge windows with their tokens counted again from the rendered text; raises
        :class:`PromiseBroken`.
        """
        for key, window in windows.items():
            render = self._judge(key, window)
            counted = (
                recount(msgspec.json.decode(render.messages), window.policy.encoding)
                + window.state.tools_tokens
            )
            if counted > window.policy.ceiling:
                raise PromiseBroken(
                    f"the render of {key} has {counted} tokens, its ceiling is"
                    f" {window.policy.ceiling}"
                )

    def _judge(self, key: Key, window: Window) -> Render:
        policy, state = window.policy, window.state
        try:
            render = render_openai(window)
        except DoesNotFit as error:
            raise PromiseBroken(f"{key} at {window.meta.position}: {error}") from error
        wrong = problems(render.messages)
        if wrong:
            raise PromiseBroken(
                f"the render of {key} at {window.meta.position} is not valid:"
                f" {'; '.join(wrong[:3])}"
            )
        if render.tokens > policy.ceiling:
            raise PromiseBroken(
                f"the render of {key} at {window.meta.position} has {render.tokens} tokens, over"
                f" {policy.ceiling}"
            )
        gauge = Gauge(
            window.tail_tokens, policy.budget(state.pinned_tokens), render.tokens, policy.ceiling
        )
        self.gauges[key] = gauge
        self.looks += 1
        if (
            self.biggest is None
            or gauge.render / gauge.ceiling > self.biggest.render / self.biggest.ceiling
        ):
            self.biggest = gauge
        return render

    @property
    def within(self) -> int:
        """The number of windows last seen within their working budget."""
        return sum(gauge.share <= 1.0 for gauge in self.gauges.values())

    @property
    def fullest(self) -> tuple[Key, Gauge] | None:
        """The window last seen with the largest share of its budget."""
        return max(self.gauges.items(), key=lambda item: item[1].share, default=None)
