"""What calls and their results teach: which tool fails with what, what worked after it, what a tool
answers. Nothing is taken from what anybody says about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from projections.events.content import ToolCall
from projections.events.memories import MemoryTags
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.clauses import instructs

MAX_OPEN = 256
"""Calls that wait for their result; of more, the oldest are forgotten."""
MAX_FAILED = 32
"""Tools that failed and did not work since."""
MAX_SEEN = 1_024
"""What was said of a tool and is not said again."""
MAX_FIELDS = 12
"""Fields of an answer that are named; one with more is a table of data."""

_ERROR = re.compile(r"^\W*(?:error|exception|traceback|failed|failure|fatal|denied)\b", re.I)
_VARIABLE = re.compile(
    r"\"[^\"]{1,80}\"|'[^']{1,80}'|\b[\w.+-]+@[\w.-]+\b|(?<![\w])[\w./:#-]*\d[\w./:#-]*"
)
_NAME = re.compile(r"^[A-Za-z_][\w-]{0,39}$")


class _Failed(Struct, frozen=True):
    """A call that failed: where it and its result stand, with what, and what worked meanwhile."""

    call: int
    result: int
    error: str
    arguments: dict[str, Any]
    between: tuple[str, ...] = ()


class _Open(Struct, frozen=True):
    offset: int
    call: ToolCall


class ToolLessons:
    """Follows the calls of one span, in its order. Calls and results pair by occurrence."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._failed: dict[str, _Failed] = {}
        self._seen: dict[str, None] = {}

    def called(self, offset: int, calls: list[ToolCall]) -> None:
        """An assistant's message made these calls."""
        self._open += [_Open(offset, call) for call in calls]
        del self._open[:-MAX_OPEN]

    def answered(
        self, offset: int, time: str | None, call_id: str, text: str, *, is_error: bool
    ) -> Iterator[Candidate]:
        """A result came: what it teaches together with what came before."""
        at = next((i for i, one in enumerate(self._open) if one.call.id == call_id), None)
        if at is None:
            return
        made = self._open.pop(at)
        tool, arguments = made.call.name, _object(made.call.arguments)
        answer = _object(text)
        error = _error_of(text, answer) if is_error or _fails(text, answer) else None
        if error is not None and instructs(error):
            self._failed.pop(tool, None)
            return
        if error is not None:
            self._failed[tool] = _Failed(made.offset, offset, error, arguments)
            while len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
            yield from self._once(_failure(tool, error, (made.offset, offset), time))
            return
        before = self._failed.pop(tool, None)
        if before is not None:
            found = _what_worked(tool, before, arguments, made.offset, offset, time)
            if found is not None:
                yield from self._once(found)
        for name, failed in self._failed.items():
            if text and tool not in failed.between:
                between = (*failed.between, tool)[-3:]
                self._failed[name] = msgspec.structs.replace(failed, between=between)
        known = _affordance(tool, arguments, answer, (made.offset, offset), time)
        if known is not None:
            yield from self._once(known)

    def _once(self, found: Candidate) -> Iterator[Candidate]:
        if found.text not in self._seen:
            self._seen[found.text] = None
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]
            yield found


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text.lstrip()[:1] == "{" else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fails(text: str, answer: dict[str, Any]) -> bool:
    """Whether a result says by its form that the call failed."""
    if answer:
        return bool(answer.get("error")) or answer.get("success") is False
    return _ERROR.match(text) is not None


def _error_of(text: str, answer: dict[str, Any]) -> str | None:
    """The error's first line without what differs from call to call: values, ids, numbers."""
    said = answer.get("error") or answer.get("message") or text
    if isinstance(said, dict):
        said = said.get("message") or said.get("code") or ""
    line = str(said).strip().splitlines()[0] if str(said).strip() else ""
    line = re.sub(r"^(?:error|exception)\s*:\s*", "", line[:1_000], flags=re.IGNORECASE)
    return " ".join(_VARIABLE.sub("…", line).split())[:160].rstrip(" .") or None


def _failure(tool: str, error: str, offsets: tuple[int, ...], time: str | None) -> Candidate:
    return _lesson(
        "failure_pattern",
        f'{tool} can fail with "{error}".',
        offsets,
        time,
        tool,
        0.8,
        failure=[error],
    )


def _what_worked(
    tool: str,
    failed: _Failed,
    arguments: dict[str, Any],
    call: int,
    result: int,
    time: str | None,
) -> Candidate | None:
    """What was other when the tool worked after it failed; None where nothing was."""
    changed = sorted(
        name
        for name in failed.arguments.keys() | arguments.keys()
        if _NAME.match(name) and failed.arguments.get(name) != arguments.get(name)
    )
    ways = []
    if failed.between:
        ways.append("after a call of " + ", then ".join(failed.between))
    if changed:
        ways.append("with other values of " + ", ".join(changed[:MAX_FIELDS]))
    if not ways:
        return None
    return _lesson(
        "procedure",
        f'When {tool} fails with "{failed.error}", it can work {" and ".join(ways)}.',
        tuple(sorted({failed.call, failed.result, call, result})),
        time,
        tool,
        0.75,
        failure=[failed.error],
        affordance=["recovery"],
    )


def _affordance(
    tool: str,
    arguments: dict[str, Any],
    answer: dict[str, Any],
    offsets: tuple[int, ...],
    time: str | None,
) -> Candidate | None:
    """What a tool takes and answers, by the names of fields alone."""
    fields = list(answer)
    if not 0 < len(fields) <= MAX_FIELDS or not all(map(_NAME.match, [*fields, *arguments])):
        return None
    if any(any(map(str.isdigit, name)) and isinstance(answer[name], dict) for name in fields):
        return None  # keys that are data
    given = ", ".join(sorted(arguments)) or "nothing"
    return _lesson(
        "tool_affordance",
        f"{tool} takes {given} and answers with {', '.join(sorted(fields))}.",
        offsets,
        time,
        tool,
        0.7,
        affordance=sorted(fields),
    )


def _lesson(
    memory_type: str,
    text: str,
    offsets: tuple[int, ...],
    time: str | None,
    tool: str,
    confidence: float,
    failure: list[str] | None = None,
    affordance: list[str] | None = None,
) -> Candidate:
    return Candidate(
        memory_type=memory_type,
        text=text,
        offsets=offsets,
        time=time,
        role="tool",
        trust="tool",
        confidence=confidence,
        entities=(tool,),
        tags=MemoryTags(tool=[tool], failure=failure or [], affordance=affordance or []),
    )
