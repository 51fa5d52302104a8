"""How much of what one model call sends is an unchanged prefix of what the next one sends, and the
peers that are measured by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import msgspec

from benchmarks.support.long_talks import Message, Talk
from projections.events.encodings import DEFAULT_ENCODING, get_encoding
from projections.events.token_cost import CALL_OVERHEAD
from projections.events.tokenizer import (
    LONGEST_TOKEN_BYTES,
    MESSAGE_OVERHEAD,
    count,
)

_encode = msgspec.json.Encoder().encode
_TEXT = b'"content":"'


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
            known = self._known[body] = (
                sum(count(text) for text in texts if text)
                + MESSAGE_OVERHEAD
                + CALL_OVERHEAD * len(calls)
            )
        return known


def begun_alike(one: bytes, other: bytes) -> int:
    """Tokens of the common beginning of two messages' texts; 0 where anything before the texts
    differs, as their roles.

    Tokens, not characters: a token in the middle of which the texts part is not common.
    """
    at = one.find(_TEXT)
    if at < 0 or one[: at + len(_TEXT)] != other[: at + len(_TEXT)]:
        return 0
    texts = [str(msgspec.json.decode(body)["content"]) for body in (one, other)]
    # Beyond the common characters nothing can be common, and the texts may be long; a token has 128
    # characters at most.
    upto = _common(*texts) + LONGEST_TOKEN_BYTES
    return _common(*(get_encoding(DEFAULT_ENCODING).encode_ordinary(text[:upto]) for text in texts))


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two sequences begin with alike."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _texts(content: Any) -> list[str]:
    if isinstance(content, list):
        return [part.get("text") or "" for part in content]
    return [content or ""]


class Tally:
    """Sums over the model calls of one conversation, or of several (``+=``); see figure `prefix`
    for what is counted.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._last: Sequence[bytes] | None = None
        self._marks: dict[str, Any] = {}
        self._total = 0
        self.calls = self.pairs = self.breaks = self.tokens = self.kept = self.messages = (
            self.most
        ) = self.broken_tokens = 0
        self.broken: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def call(self, bodies: Sequence[bytes], marks: dict[str, Any] | None = None) -> None:
        """Take in what a model call sends, the system lane left out.

        ``marks`` tell the cause of a break by name: it is the first whose value is not what it was
        at the last call.
        """
        marks = marks or {}
        same = whole = 0
        if self._last is not None:
            most = min(len(self._last), len(bodies))
            while same < most and self._last[same] == bodies[same]:
                same += 1
            # Of what is all the same as before the sum is known, and it need not be gone through at
            # every call.
            whole = (
                self._total
                if same == len(self._last)
                else sum(map(self._weights.of, self._last[:same]))
            )
            kept = whole
            if same < len(self._last):
                if same < len(bodies):
                    kept += begun_alike(self._last[same], bodies[same])
                names = dict.fromkeys([*marks, *self._marks])
                cause = next(
                    (name for name in names if self._marks.get(name) != marks.get(name)), "other"
                )
                self.breaks += 1
                self.broken[cause] += 1
                self.lost[cause] += self._total - kept
                self.broken_tokens += self._total
            self.pairs += 1
            self.tokens += self._total
            self.kept += kept
        self.calls += 1
        self.messages += len(bodies)
        self.most = max(self.most, len(bodies))
        self._total = whole + sum(map(self._weights.of, bodies[same:]))
        self._last, self._marks = bodies, marks

    def __iadd__(self, other: Tally) -> Self:
        for name in ("calls", "pairs", "breaks", "tokens", "kept", "messages", "broken_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.most = max(self.most, other.most)
        self.broken += other.broken
        self.lost += other.lost
        return self

    @property
    def share(self) -> float:
        """The share of all calls' tokens that the next call's render begins with, unchanged."""
        return self.kept / max(1, self.tokens)

    def row(self) -> dict[str, Any]:
        """The sums as a row of a table."""
        row: dict[str, Any] = {
            "share": round(self.share, 4),
            "cuts_per_call": round(self.breaks / max(1, self.pairs), 4),
            "calls": self.calls,
            "tokens_per_call": round(self.tokens / max(1, self.pairs)),
            "kept_at_a_cut": round(1 - self.lost.total() / max(1, self.broken_tokens), 4),
        }
        if any(cause != "other" for cause in self.broken):
            row["lost_share_by_cause"] = {
                cause: round(lost / max(1, self.tokens), 4)
                for cause, lost in self.lost.most_common()
            }
            row["breaks_by_cause"] = dict(self.broken.most_common())
        return row


class Tallies:
    """A side over a set of conversations, twice: a model call before each of the assistant's
    messages, and one after every message.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.by_call = Tally(weights)
        self.by_message = Tally(weights)

    def __iadd__(self, other: Tallies) -> Self:
        self.by_call += other.by_call
        self.by_message += other.by_message
        return self

    def row(self) -> dict[str, Any]:
        """Both as a row of a table; cuts are told of the first: in the second each tool call that
        waits for its result looks like one.
        """
        by_message = self.by_message.row()
        return {
            **self.by_call.row(),
            "by_message": {
                k: by_message[k] for k in ("share", "lost_share_by_cause") if k in by_message
            },
        }


Peer = Callable[[list[Message], list[bytes], int], list[bytes]]


def low_water(weights: Weights, share: float = 0.5) -> Peer:
    """A bare cut: over the budget, the oldest whole groups go until ``share`` of it is left;
    nothing takes their place.
    """
    start, begun = 0, -1

    def render(messages: list[Message], bodies: list[bytes], budget: int) -> list[bytes]:
        nonlocal start, begun
        if len(bodies) < begun:
            start = 0
        begun = len(bodies)
        tokens = sum(map(weights.of, bodies[start:]))
        if tokens > budget:
            while start < len(bodies) - 1 and (
                tokens > share * budget or messages[start]["role"] == "tool"
            ):
                tokens -= weights.of(bodies[start])
                start += 1
        return bodies[start:]

    return render


def sliding(messages: list[Message], bodies: list[bytes], budget: int) -> list[bytes]:
    """The last 30 messages."""
    return bodies[-30:]


def langchain_trim(weights: Weights) -> Peer:
    """LangChain's ``trim_messages`` to the budget: strategy last, beginning with a user's message.

    It is given the last messages of twice the budget (or 200), not thousands: it takes from the
    end, so its answer is the same.
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
        kept = trim_messages(
            given, max_tokens=budget, token_counter=tokens_of, strategy="last", start_on="human"
        )
        return bodies[len(bodies) - len(kept) :]

    return render


def peer_tally(peer: Peer, talk: Talk, budget: int, weights: Weights) -> Tallies:
    """Run a peer over a conversation, the system prompt left out; it is asked after each message,
    as our side is.
    """
    found = Tallies(weights)
    so_far: list[Message] = []
    bodies: list[bytes] = []
    spoken = [message for message in talk if message["role"] != "system"]
    for message, after in zip(spoken, [*spoken[1:], None], strict=True):
        so_far.append(message)
        bodies.append(_encode(message))
        sent = peer(so_far, bodies, budget)
        found.by_message.call(sent)
        if after is not None and after["role"] == "assistant":
            found.by_call.call(sent)
    return found
