"""How much of what one model call sends is an unchanged prefix of what the next one sends, and the peers that are measured by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from benchmarks.support.long_talks import Message
from projections.costs import CALL_OVERHEAD
from projections.tokens import MESSAGE_OVERHEAD, count

_encode = msgspec.json.Encoder().encode


class Weights:
    """Tokens of messages by their JSON bytes, counted once each, the same way for every side."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, body: bytes) -> int:
        """Tokens of one message: its texts, and what its frame and its calls cost."""
        known = self._known.get(body)
        if known is None:
            message = msgspec.json.decode(body)
            texts = [*_texts(message.get("content")), message.get("name") or ""]
            calls = [call["function"] for call in message.get("tool_calls") or ()]
            texts += [call[field] for call in calls for field in ("name", "arguments")]
            known = self._known[body] = sum(count(text) for text in texts if text) + MESSAGE_OVERHEAD + CALL_OVERHEAD * len(calls)
        return known


def _texts(content: Any) -> list[str]:
    if isinstance(content, list):
        return [part.get("text") or "" for part in content]
    return [content or ""]


class Tally:
    """Sums over the model calls of a conversation; see figure `prefix` for what is counted."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._last: Sequence[bytes] | None = None
        self._marks: dict[str, Any] = {}
        self.calls = self.breaks = self.tokens = self.kept = self.messages = self.most = self.broken_tokens = 0
        self.broken: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def call(self, bodies: Sequence[bytes], marks: dict[str, Any] | None = None) -> None:
        """Take in what a model call sends, the system lane left out.

        ``marks`` tell the cause of a break by name: it is the first whose value is not what it was at the last call.
        """
        marks = marks or {}
        if self._last is not None:
            total = sum(map(self._weights.of, self._last))
            same = 0
            while same < len(self._last) and same < len(bodies) and self._last[same] == bodies[same]:
                same += 1
            kept = sum(map(self._weights.of, self._last[:same]))
            self.tokens += total
            self.kept += kept
            if same < len(self._last):
                names = dict.fromkeys([*marks, *self._marks])
                cause = next((name for name in names if self._marks.get(name) != marks.get(name)), "other")
                self.breaks += 1
                self.broken[cause] += 1
                self.lost[cause] += total - kept
                self.broken_tokens += total
        self.calls += 1
        self.messages += len(bodies)
        self.most = max(self.most, len(bodies))
        self._last, self._marks = bodies, marks

    @property
    def share(self) -> float:
        """The share of all calls' tokens that the next call's render begins with, unchanged."""
        return self.kept / max(1, self.tokens)

    def row(self) -> dict[str, Any]:
        """The sums as a row of a table."""
        row: dict[str, Any] = {
            "share": round(self.share, 4),
            "cuts_per_call": round(self.breaks / max(1, self.calls - 1), 4),
            "calls": self.calls,
            "tokens_per_call": round(self.tokens / max(1, self.calls - 1)),
            "kept_at_a_cut": round(1 - self.lost.total() / max(1, self.broken_tokens), 4),
        }
        if any(cause != "other" for cause in self.broken):
            row["lost_share_by_cause"] = {cause: round(lost / max(1, self.tokens), 4) for cause, lost in self.lost.most_common()}
            row["breaks_by_cause"] = dict(self.broken.most_common())
        return row


Peer = Callable[[list[Message], list[bytes], int], list[bytes]]


def low_water(weights: Weights, share: float = 0.5) -> Peer:
    """A bare cut: over the budget, the oldest whole groups go until ``share`` of it is left; nothing takes their place."""
    start, begun = 0, -1

    def render(messages: list[Message], bodies: list[bytes], budget: int) -> list[bytes]:
        nonlocal start, begun
        if len(bodies) < begun:
            start = 0
        begun = len(bodies)
        tokens = sum(map(weights.of, bodies[start:]))
        if tokens > budget:
            while start < len(bodies) - 1 and (tokens > share * budget or messages[start]["role"] == "tool"):
                tokens -= weights.of(bodies[start])
                start += 1
        return bodies[start:]

    return render


def sliding(messages: list[Message], bodies: list[bytes], budget: int) -> list[bytes]:
    """The last 30 messages."""
    return bodies[-30:]


def langchain_trim(weights: Weights) -> Peer:
    """LangChain's ``trim_messages`` to the budget: strategy last, beginning with a user's message.

    It is given the last messages of twice the budget (or 200), not thousands: it takes from the end, so its answer is the same.
    """
    from langchain_core.messages import BaseMessage, convert_to_messages, trim_messages

    made: dict[int, BaseMessage] = {}

    def tokens_of(given: Iterable[BaseMessage]) -> int:
        return sum(int(message.additional_kwargs["tokens"]) for message in given)

    def render(messages: list[Message], bodies: list[bytes], budget: int) -> list[bytes]:
        first, tokens = len(bodies), 0
        while first > 0 and (tokens <= 2 * budget or len(bodies) - first < 200):
            first -= 1
            tokens += weights.of(bodies[first])
        given = []
        for message, body in zip(messages[first:], bodies[first:], strict=True):
            key = id(message)
            if key not in made:
                whole = {**message, "content": message.get("content") or ""}
                (made[key],) = convert_to_messages([whole])
                made[key].additional_kwargs["tokens"] = weights.of(body)
            given.append(made[key])
        kept = trim_messages(given, max_tokens=budget, token_counter=tokens_of, strategy="last", start_on="human")
        return bodies[len(bodies) - len(kept) :]

    return render


def peer_tally(peer: Peer, talk: Sequence[Message], budget: int, weights: Weights) -> Tally:
    """Run a peer over a conversation: asked before each of the assistant's messages, the system prompt left out."""
    tally = Tally(weights)
    so_far: list[Message] = []
    bodies: list[bytes] = []
    for message in talk:
        if message["role"] == "system":
            continue
        if message["role"] == "assistant" and bodies:
            tally.call(peer(so_far, bodies, budget))
        so_far.append(message)
        bodies.append(_encode(message))
    return tally
