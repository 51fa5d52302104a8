"""Anthropic's Messages format, converted from a render in OpenAI's: ``system`` apart, user and
assistant in turns, unique ``tool_use`` ids.

The render's bodies are the source, so both formats say the same and obey the same limits. Only
images and files of tools' results are sent here and not there (``Render.attached``). The common
format alone is joined from stored bytes (``projections.window.bodies``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from projections.events.json_depth import nested_beyond
from projections.events.json_limits import MAX_DEPTH
from projections.events.json_text import holds_more
from projections.formats.anthropic_media import document_block, image_block
from projections.formats.context_document import context_document
from projections.policy.thresholds import SUMMARY_MARK
from projections.render.parts import Render
from projections.window.groups import Group
from projections.window.tool_calls import Used
from projections.window.window import Window

BEGIN = "[The conversation goes on]"
"""A user's message in front of an assistant's that would stand first: the format wants a user to
begin.
"""
EMPTY = "[empty]"
FEW_VALUES = 2_000
"""Values of a call's arguments that are decoded."""
LONGEST_OF_MANY = 1 << 18
"""Bytes of arguments of more values: to look through megabytes of them holds up other threads."""
_OUT_OF_RANGE = re.compile(rb"(?<=[\s:,\[])-?(?:\d[\d.]*[eE]\+?\d{3}|\d{309})")
"""A number that no double holds, or text like it: few parsers read it."""
_NOT_ID = re.compile(r"[^A-Za-z0-9_-]")
PROVIDER = "anthropic"


def anthropic_document(window: Window, render: Render) -> bytes:
    """The context document (``projections.formats.context_document.context_document``) with
    ``messages`` and ``system`` in Anthropic's format.
    """
    system, messages = to_anthropic(
        [msgspec.json.decode(body) for body in render.bodies], sources_of(window, render)
    )
    bodies = [msgspec.json.encode(message) for message in messages]
    fields = b',"system":' + msgspec.json.encode(system) if system else b""
    return context_document(window, Render(bodies, render.tokens, render.trace), fields)


class Source(NamedTuple):
    """What the window knows of a rendered message beside it.

    ``reasoning`` are its reasoning parts; ``names`` the names for its calls' ids, which are the
    same in every render; ``error`` says that a result is one, ``said`` that somebody said it: its
    text may look like a summary, and is none. ``parts`` are the content of a result that has images
    or files, with these.
    """

    reasoning: tuple[dict[str, Any], ...] = ()
    names: tuple[str, ...] = ()
    error: bool = False
    said: bool = False
    parts: Sequence[dict[str, Any]] = ()


def sources_of(window: Window, render: Render) -> list[Source]:
    """The source of each of a render's messages.

    The first call with an id keeps it. A later one, as far back as the window knows ids, is named
    after its place in the log: so it has the same name in every render, whatever was summarised
    meanwhile.
    """
    found: dict[int, Source] = {}
    used = window.meta.base.used
    for entry in window.tail:
        names = []
        for i, (call_id, _, _) in enumerate(entry.calls or ()):
            names.append(
                f"{call_id[:40]}-{entry.offset}-{i}" if Used.holds(used, call_id) else call_id
            )
            if entry.offset > window.covered_to:
                used = Used.add(used, call_id)
        shown = Group(entry).shown_calls() if names else []
        reasoning = tuple(msgspec.json.decode(entry.reasoning)) if entry.reasoning else ()
        found[entry.offset] = Source(
            reasoning, tuple(names[i] for i in shown), entry.error, said=True
        )
    for offset, body in render.attached.items():
        parts = msgspec.json.decode(body)["content"]
        found[offset] = found.get(offset, Source())._replace(parts=parts)
    return [found.get(offset, Source()) for offset in render.offsets] or [Source()] * len(
        render.bodies
    )


def to_anthropic(
    rendered: list[dict[str, Any]], sources: Sequence[Source] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Convert rendered OpenAI messages; returns the system text ("" for none) and the messages.

    System and developer messages, the summary and the note of left-out messages become the system
    text, in their order. Results stand in the user's message right after their calls. Each
    ``tool_use`` id is unique: without ``sources`` one that was used before is numbered (``ID-2``,
    ``ID-3``, ...). Reasoning goes back with its signature where this provider made it, and where it
    may stand: first in a message, and not alone.
    """
    system: list[str] = []
    turns = _Turns()
    for message, source in zip(rendered, sources or [Source()] * len(rendered), strict=True):
        role, content = message["role"], message.get("content")
        if role in ("system", "developer") or _is_summary(message, source, turns):
            system.append(_plain(content))
        elif role == "tool":
            turns.add("user", [turns.result(message, source)])
        elif role == "assistant":
            thoughts = _thoughts(source.reasoning) if turns.begins("assistant") else []
            calls = turns.calls(message.get("tool_calls") or [], source.names)
            said = [*_blocks(content), *calls]
            if thoughts and not said:
                said = [_text(EMPTY)]  # Anthropic refuses a message that ends with thinking
            turns.add("assistant", [*thoughts, *said])
        else:
            named = f"{message['name']}: " if message.get("name") else ""
            turns.add("user", _blocks(content, named))
    return "\n\n".join(text for text in system if text.strip()), turns.messages


def _is_summary(message: dict[str, Any], source: Source, turns: _Turns) -> bool:
    content = message.get("content")
    return (
        not source.said
        and not turns.messages
        and message["role"] == "assistant"
        and isinstance(content, str)
        and content.startswith(SUMMARY_MARK)
    )


@dataclass(slots=True)
class _Turns:
    """Messages in turns, and the ids of calls used so far."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    waiting: dict[str, list[str]] = field(default_factory=dict)

    def begins(self, role: str) -> bool:
        """Whether what a role says next is a message of its own."""
        return not self.messages or self.messages[-1]["role"] != role

    def add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """Put blocks at the end, into the last message where that is of the same role."""
        if not self.messages and role == "assistant":
            self.messages.append({"role": "user", "content": [_text(BEGIN)]})
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks or [_text(EMPTY)]})

    def calls(self, calls: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
        """The ``tool_use`` blocks of an assistant's calls; their results are expected next, in this
        order.
        """
        self.waiting = {}
        blocks = []
        for i, call in enumerate(calls):
            name = self._fresh(names[i] if len(names) == len(calls) else call["id"])
            self.waiting.setdefault(call["id"], []).append(name)
            blocks.append(
                {
                    "type": "tool_use",
                    "id": name,
                    "name": call["function"]["name"],
                    "input": _arguments(call),
                }
            )
        return blocks

    def result(self, message: dict[str, Any], source: Source) -> dict[str, Any]:
        """The ``tool_result`` block of a result, under the new name of its call."""
        names = self.waiting.get(message["tool_call_id"]) or [
            _NOT_ID.sub("_", message["tool_call_id"])
        ]
        given = message.get("content")
        # Anthropic takes nothing but text in an error, and refuses one without content.
        content = _blocks(given if source.error else source.parts or given)
        if source.error and not content:
            content = [_text(EMPTY)]
        block = {"type": "tool_result", "tool_use_id": names.pop(0), "content": content}
        return {**block, "is_error": True} if source.error else block

    def _fresh(self, call_id: str) -> str:
        base = _NOT_ID.sub("_", call_id)[:60] or "call"
        name, n = base, 1
        while name in self.used:
            n += 1
            name = f"{base}-{n}"
        self.used.add(name)
        return name


def _arguments(call: dict[str, Any]) -> dict[str, Any] | msgspec.Raw:
    """A call's arguments as an object. Kept as text in one is what a model wrote otherwise, what is
    nested too deep to be written again, and megabytes of values.

    JSON of many values goes on as it was written: decoded it would take 100 times as much memory.
    """
    text = call["function"]["arguments"]
    written = text.encode()
    many = holds_more(written, FEW_VALUES)
    if (
        (many and len(written) > LONGEST_OF_MANY)
        or nested_beyond(written, MAX_DEPTH)
        or (many and _OUT_OF_RANGE.search(written))
    ):
        return {"arguments": text}
    try:
        value: Any = msgspec.json.decode(written, type=msgspec.Raw if many else Any)
    except msgspec.DecodeError:
        return {"arguments": text} if text else {}
    is_object = written.lstrip().startswith(b"{") if many else isinstance(value, dict)
    return value if is_object else {"arguments": value}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _blocks(content: Any, prefix: str = "") -> list[dict[str, Any]]:
    """Content as blocks; empty text is no block, as the format refuses it."""
    if content is None or isinstance(content, str):
        return [_text(prefix + content)] if content and content.strip() else []
    blocks = [_text(prefix.strip())] if prefix else []
    return blocks + [block for block in map(_block, content) if block is not None]


def _block(part: dict[str, Any]) -> dict[str, Any] | None:
    if part["type"] == "text":
        return _text(part["text"]) if part["text"].strip() else None
    block = (
        image_block(part["image_url"]["url"])
        if part["type"] == "image_url"
        else document_block(part.get("file") or {})
    )
    return block or _text(f"[{part['type']} part left out]")


def _thoughts(reasoning: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reasoning that this provider signed, as it takes it back; another one's, and what nobody
    signed, stays out.
    """
    blocks: list[dict[str, Any]] = []
    for part in reasoning:
        if part.get("provider") == PROVIDER and part.get("signature"):
            # Thinking may be empty and signed all the same (its text withheld); only what was
            # redacted never had a text.
            if part.get("text") is not None:
                blocks.append(
                    {"type": "thinking", "thinking": part["text"], "signature": part["signature"]}
                )
            else:
                blocks.append({"type": "redacted_thinking", "data": part["signature"]})
    return blocks


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        part.get("text") or f"[{part['type']} part left out]" for part in content or ()
    )
