"""What a window keeps of an event's text: made when it is folded, and made again, the same, from
the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from projections.events import types as events
from projections.events.size_limits import control_body
from projections.events.types import AnyEvent
from projections.reducers.variants import Variants
from projections.window.bodies import message_body, result_body
from projections.window.entry import RANGES, Entry, Kind
from projections.window.groups import Link

_encode = msgspec.json.Encoder().encode


def has_text(entry: Entry) -> bool:
    """Whether an entry keeps something of its event's text."""
    return entry.kind not in RANGES and entry.kind != Kind.NOTE and not entry.out


def reasoning_of(data: events.Message) -> bytes:
    """A message's reasoning parts as a JSON array, each with its provider; empty without any.

    Where a part does not say whose it is, the model's name does: a signature only ever goes back to
    the provider that made it.
    """
    if not isinstance(data.content, list):
        return b""
    parts = [part for part in data.content if isinstance(part, events.ReasoningPart)]
    if not parts:
        return b""
    maker = "anthropic" if (data.model or "").startswith("claude") else None
    return _encode(
        [msgspec.structs.replace(part, provider=part.provider or maker) for part in parts]
    )


class Text(NamedTuple):
    """What :meth:`projections.window.entry.Entry.put_text` takes."""

    body: bytes
    chars: int
    reasoning: bytes


def refill(entry: Entry, event: AnyEvent, variants: Variants, tools: Mapping[Link, str]) -> None:
    """Put the text of its event into an entry that has its variants; ``tools`` are those of the
    tail it is in (:func:`tools_of`). Raises as :func:`text_of`.
    """
    entry.put_text(*text_of(entry, event, variants, tools))


def text_of(entry: Entry, event: AnyEvent, variants: Variants, tools: Mapping[Link, str]) -> Text:
    """The text of its event as an entry of these variants has it.

    Raises:
        KeyError: the event is not of the entry's kind.
    """
    body, tool = _body(event, entry), tool_of(entry, tools)
    chars, reasoning = 0, entry.reasoning
    for i, (_, variant, _) in enumerate(entry.variants):
        body, chars = variants.make(body, variant, entry, tool, entry.variants[:i], chars)
    if isinstance(event, events.MessageEvent):
        left_out = entry.variant.startswith(("out:", "pair:"))
        reasoning = b"" if left_out else reasoning_of(event.data)
    return Text(body, chars, reasoning)


def tool_of(entry: Entry, tools: Mapping[Link, str]) -> str:
    """The tool whose result an entry is, where it is known."""
    return tools.get(entry.link, "") if entry.link else ""


def _body(event: AnyEvent, entry: Entry) -> bytes:
    if isinstance(event, events.MessageEvent):
        return message_body(event.data)
    if isinstance(event, events.ToolResultEvent):
        return result_body(event.data, entry.sent_id)
    if isinstance(event, events.OtherEvent):
        raise KeyError(entry.offset)
    return control_body(event.data)


def tools_of(tail: Iterable[Entry]) -> dict[Link, str]:
    """The names of the tools of the tail's calls, by ``(offset, index)``."""
    return {
        (entry.offset, i): name
        for entry in tail
        for i, (_, name, _) in enumerate(entry.calls or ())
    }
