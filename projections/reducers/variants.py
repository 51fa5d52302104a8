"""Variants: what a shortened message looks like. Each is a pure function of the whole message, so
that it can be made again from the log.

An entry records its variants by name (``projections.window.entry.Entry.variants``):

- ``soft:N``: a tool result as the first and last characters of its text, N together, and a note in
  between;
- ``spill``: a tool result that was chunked when it was appended: the preview it came with;
- ``clip:N``: a message that came larger than the ceiling: the beginning and the end of its text, at
  most N tokens;
- ``clear``: a tool result as a stub with its length and position;
- ``text:TEMPLATE``: a tool result as the template with ``{tool_name}``, ``{call_id}`` and
  ``{result_length}`` filled in;
- ``call:NAME``: a tool result as a registered callable makes it;
- ``head:N``: a list or a table as its first N items or rows, with their number and position;
- ``only:I,J``: an assistant's message with none but these of its calls;
- ``pair:I,J:REDUCER``: the same without its text: what stays of a message that was left out, for
  its pinned results;
- ``out:REDUCER``: nothing at all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial

import msgspec

from projections.policy.policy import NOT_REGISTERED, Callables
from projections.policy.profiles import DEFAULT_TEMPLATE
from projections.reducers.tables import head_of
from projections.window.bodies import body_tokens, result_text, with_calls
from projections.window.entry import Entry, Kind, Variant, calls_named, shown_calls
from projections.window.truncation import clip
from projections.window.window import Window

logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_ITS_OWN = (Exception, SystemExit, GeneratorExit)
"""What a callable may raise: ``exit()`` in one ends no worker."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_FILLED_IN = re.compile(r"\{(?:tool_name|call_id|result_length)\}")
"""What a template names."""


class Variants:
    """Makes variants of one conversation's entries.

    Args:
        position_of: the position string of an offset.
        encoding: what tokens are counted with.
        callables: the replacements that policies may name.
        failed: called with the name of a callable that could not do its work, and the reason.
    """

    def __init__(
        self,
        position_of: Callable[[int], str],
        encoding: str,
        callables: Callables,
        failed: Callable[[str, str], None] = lambda name, why: None,
    ) -> None:
        self._position_of = position_of
        self._encoding = encoding
        self._callables = callables
        self._failed = failed

    @classmethod
    def of(cls, window: Window) -> Variants:
        """What makes the variants of this window's entries."""
        failed = partial(window.rules.note_failure, window.key)
        return cls(window.position_of, window.policy.encoding, window.rules.callables, failed)

    def make(
        self,
        body: bytes,
        variant: str,
        entry: Entry,
        tool: str = "",
        before: tuple[Variant, ...] = (),
        chars: int = 0,
    ) -> tuple[bytes, int]:
        """A body of the entry in another variant, and the length of the whole text of a result.

        Args:
            body: the entry's body as the variants ``before`` left it.
            tool: the tool whose result it is, where it is known.
            chars: the length of the whole text, 0 where only the entry or the body tells it.
        """
        name, _, arg = variant.partition(":")
        chars = chars or entry.chars
        if name == "out":
            return b"", chars
        if name == "spill":
            return body, chars
        if name in ("only", "pair"):
            shown, wanted = shown_calls(before, len(entry.calls or ())), calls_named(variant)
            places = [place for place, i in enumerate(shown) if i in wanted]
            return with_calls(body, places, keep_text=name == "only"), chars
        if name == "clip":
            if entry.kind == Kind.RESULT:
                chars = chars or len(result_text(_decode(body)))
            return clip(body, 0, int(arg))[1], chars
        message = _decode(body)
        text = result_text(message)
        chars = chars or len(text)
        position = self._position_of(entry.offset)
        if name == "soft":
            message["content"] = soft_trimmed(text, int(arg), chars, position)
        elif name == "clear":
            message["content"] = (
                f"[{chars} characters of a tool result are left out here: they stand at"
                f" position {position}]"
            )
        elif name == "head":
            message["content"] = head_of(text, int(arg), position) or text
        else:
            call_id = message["tool_call_id"]
            tool = message.get("name") or tool
            called = self._called(arg, tool, call_id, text) if name == "call" else None
            message["content"] = called or _filled(
                arg if name == "text" else DEFAULT_TEMPLATE, tool, call_id, chars
            )
        return _encode(message), chars

    def tokens(self, body: bytes) -> int:
        """The tokens of a body that holds text and calls alone, counted."""
        return body_tokens(body, self._encoding)

    def _called(self, name: str, tool: str, call_id: str, text: str) -> str | None:
        """What the callable says; None where it fails, says no text, or is not there."""
        replace = self._callables.get(name)
        if replace is None:
            self._failed(name, NOT_REGISTERED)
            return None
        try:
            made = replace(tool, call_id, text)
        except _ITS_OWN as error:
            # A deployment's own code must not stop a partition; the same input fails the same way.
            logger.warning(
                "callable %r failed for a result of tool %r, the default template is used: %r",
                name,
                tool,
                error,
            )
            self._failed(name, f"raised {type(error).__name__}")
            return None
        # Half a surrogate pair is no text that JSON can carry.
        return made if isinstance(made, str) and made and not _SURROGATE.search(made) else None


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
    return _FILLED_IN.sub(lambda found: values[found[0]], template)
