"""Forms: what a shortened message looks like. Each is a pure function of the whole message, so that
it can be made again from the log.

An entry records its forms by name (``projections.window.conversation_state.Entry.forms``):

===================
=================================================================================================
``soft:N``           a tool result: the first and last characters of its text, N together, and a
note in between ``spill``            a tool result that was chunked when it was appended: the
preview it came with ``clip:N``           a message that came larger than the ceiling: the beginning
and the end of its text, N tokens at most ``clear``            a tool result: a stub with its length
and position ``text:TEMPLATE``    a tool result: the template with ``{tool_name}``, ``{call_id}``
and ``{result_length}`` filled in ``call:NAME``        a tool result: what a registered callable
made of it ``head:N``           a tool result that is a list or a table: its first N items or rows,
with their number and position ``only:I,J``         an assistant's message with none but these of
its calls ``pair:I,J:REDUCER`` the same without its text: what stays of a message that was left out,
for its pinned results ``out:REDUCER``      nothing at all ===================
=================================================================================================
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec

from projections.events.token_cost import CALL_OVERHEAD
from projections.events.tokenizer import MESSAGE_OVERHEAD, count
from projections.events.truncation import clip
from projections.policy.policy import Callables
from projections.policy.profiles import DEFAULT_TEMPLATE
from projections.window.conversation_state import Entry, Form, Kind
from projections.window.tables import head_of

logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_SURROGATE = re.compile("[\ud800-\udfff]")


class Variants:
    """Makes forms for one conversation.

    Args:
        position_of: the position string of an offset.
        encoding: what tokens are counted with.
        callables: the replacements that policies may name.
    """

    def __init__(
        self, position_of: Callable[[int], str], encoding: str, callables: Callables
    ) -> None:
        self._position_of = position_of
        self._encoding = encoding
        self._callables = callables

    def shaped(
        self, body: bytes, form: str, entry: Entry, tool: str, before: tuple[Form, ...] = ()
    ) -> bytes:
        """A body of the entry, which has the forms ``before``, in another form; ``tool`` is the
        tool whose result it is, where it is known.

        Notes the length of a result's text in the entry the first time: later forms are made of
        what earlier ones left.
        """
        name, _, arg = form.partition(":")
        if name == "out":
            return b""
        if name == "spill":
            return body
        message = _decode(body)
        if name == "clip":
            if entry.kind == Kind.RESULT:
                entry.chars = entry.chars or len(result_text(message))
            return clip(body, 0, int(arg))[1]
        if name in ("only", "pair"):
            shown = shown_calls(before, len(entry.calls or ()))
            places = [place for place, i in enumerate(shown) if i in _indexes(form)]
            return _encode(_with_calls(message, places, keep_text=name == "only"))
        text = result_text(message)
        entry.chars = entry.chars or len(text)
        position = self._position_of(entry.offset)
        if name == "soft":
            message["content"] = soft_trimmed(text, int(arg), entry.chars, position)
        elif name == "clear":
            message["content"] = (
                f"[{entry.chars} characters of a tool result are left out here: they stand at"
                f" position {position}]"
            )
        elif name == "head":
            message["content"] = head_of(text, int(arg), position) or text
        else:
            call_id = message["tool_call_id"]
            tool = message.get("name") or tool
            called = self._called(arg, tool, call_id, text) if name == "call" else None
            message["content"] = called or _filled(
                arg if name == "text" else DEFAULT_TEMPLATE, tool, call_id, entry.chars
            )
        return _encode(message)

    def tokens(self, body: bytes) -> int:
        """The tokens of a body that holds text and calls alone, counted."""
        if not body:
            return 0
        message = _decode(body)
        total = MESSAGE_OVERHEAD
        if message.get("name"):
            total += self._count(message["name"]) + (message["role"] != "tool")
        total += self._count(result_text(message))
        for call in message.get("tool_calls") or ():
            total += (
                CALL_OVERHEAD
                + self._count(call["function"]["name"])
                + self._count(call["function"]["arguments"])
            )
        return total

    def _count(self, text: str) -> int:
        return count(text, self._encoding) if text else 0

    def _called(self, name: str, tool: str, call_id: str, text: str) -> str | None:
        """What the callable says; None where it fails, says no text, or is not there."""
        replace = self._callables.get(name)
        try:
            made = None if replace is None else replace(tool, call_id, text)
        except Exception as error:  # noqa: BLE001 (a deployment's own code must not stop a partition; the same input fails the same way)
            logger.warning(
                "callable %r failed for a result of tool %r, the default template is taken: %r",
                name,
                tool,
                error,
            )
            return None
        # Half a surrogate pair is no text that JSON can carry.
        return made if isinstance(made, str) and made and not _SURROGATE.search(made) else None


def shown_calls(forms: tuple[Form, ...], count: int) -> list[int]:
    """Which of a message's ``count`` calls it still has after these forms, by index."""
    if not forms:
        return list(range(count))
    form = forms[-1][1]
    if form.startswith(("only:", "pair:")):
        return _indexes(form)
    return [] if form.startswith("out:") else list(range(count))


def _indexes(form: str) -> list[int]:
    return [int(i) for i in form.split(":")[1].split(",") if i]


def reducer_of(form: str) -> str:
    """The reducer that a form is of, as the trace names it."""
    name, _, arg = form.partition(":")
    if name in ("out", "pair"):
        return arg if name == "out" else arg.partition(":")[2]
    return _REDUCERS[name]


_REDUCERS = {
    "spill": "spill",
    "clip": "clip_oversized",
    "soft": "soft_trim",
    "clear": "hard_clear",
    "head": "summarize_tool_results",
    "text": "compact_tool_results",
    "call": "compact_tool_results",
    "only": "compact_tool_results",
}


def result_text(message: dict[str, Any]) -> str:
    """The text of a message's content, its parts joined by line ends; a word stands for an image or
    a file.
    """
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    words = {"image_url": "[an image]", "file": "[a file]"}
    return "\n".join(
        part["text"] if part["type"] == "text" else words.get(part["type"], "") for part in content
    )


def soft_trimmed(text: str, keep: int, chars: int, position: str) -> str:
    """The first and last characters of a text, ``keep`` together, with a note in between of how
    many are missing and where they stand.
    """
    if len(text) <= keep:
        return text
    tail = keep // 3
    head = keep - tail
    note = (
        f"[… {chars - keep} of {chars} characters left out: the whole stands at position"
        f" {position} …]"
    )
    return (
        "\n".join((text[:head], note, text[len(text) - tail :]))
        if tail
        else f"{text[:head]}\n{note}"
    )


def _filled(template: str, tool: str, call_id: str, chars: int) -> str:
    """Plain replacement, in one pass: what is filled in is never looked at again, and other braces
    stay.
    """
    values = {"{tool_name}": tool or "tool", "{call_id}": call_id, "{result_length}": str(chars)}
    made, at = [], 0
    while at < len(template):
        name = next((name for name in values if template.startswith(name, at)), None)
        made.append(values[name] if name else template[at])
        at += len(name) if name else 1
    return "".join(made)


def _with_calls(message: dict[str, Any], indexes: list[int], *, keep_text: bool) -> dict[str, Any]:
    calls = [call for i, call in enumerate(message.get("tool_calls") or ()) if i in indexes]
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    if calls:
        kept["tool_calls"] = calls
    if not keep_text:
        kept["content"] = None
    return kept
