"""What a person reads where a value does not have its type: msgspec's sentence in plain words, with
the values or the fields that are allowed.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from msgspec import inspect

from projections.events.error_places import place_in
from projections.names import one_line

_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")
_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value (.+)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN_BEGIN = "Object contains unknown field `"
_UNKNOWN = re.compile(rf"{_UNKNOWN_BEGIN}(.*)`", re.DOTALL)
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "an RFC 3339 time with its zone, like 2026-01-31T12:00:00Z",
}
_type_info = cache(inspect.type_info)
"""The types of bodies are few, and looking at a large one takes milliseconds."""
_JSON = {dict: "object", list: "array", type(None): "null"}
_LONGEST = 60
"""Characters of a caller's value that an error repeats."""


def explain(error: Exception, kind: Any, name: str, given: str | None = None) -> str:
    """``field PLACE: REASON``, or ``NAME: REASON`` where the whole value is wrong.

    Args:
        error: the ``msgspec.ValidationError``.
        kind: the type that the value was converted to.
        name: what the value is called.
        given: the value, where it is the text of a parameter or a setting.
    """
    place, reason = place_and_reason(error, kind, name, given)
    return f"field {place}: {reason}" if place else f"{name}: {reason}"


def place_and_reason(
    error: Exception, kind: Any, name: str, given: str | None = None
) -> tuple[str, str]:
    """Where a value is wrong, like ``calls[0].id`` (empty: all of it), and why."""
    text = str(error)
    match = place_in(text)
    if text.startswith(_UNKNOWN_BEGIN) and match and not _UNKNOWN.fullmatch(text, 0, match.start()):
        match = None  # a caller's key that ends like a place
    place = match[2] if match else ""
    sentence = text[: match.start()] if match else text
    # A key is text, whatever its object holds.
    there = [] if match and match[1] else _at(_type_info(kind), _STEP.findall(place))
    inner = place and f"{place}."
    if missing := _MISSING.fullmatch(sentence):
        return f"{inner}{missing[1]}", "missing"
    if unknown := _UNKNOWN.fullmatch(sentence):
        fields = ", ".join(sorted(_fields(there)))
        return one_line(f"{inner}{unknown[1]}"), f"unknown to {name} (it has {fields or 'none'})"
    if (own := re.match(r"([a-z_]+): ", sentence)) and not place:
        return own[1], sentence[own.end() :]  # a struct's own check
    return place, _reason(sentence, _values(there), given)


def _reason(sentence: str, values: list[str], given: str | None) -> str:
    allowed = f"one of {', '.join(values)}" if len(values) > 1 else "".join(values)
    if (value := _VALUE.fullmatch(sentence)) and values:
        quoted = value[1] if len(value[1]) <= _LONGEST else f"{value[1][:_LONGEST]}…"
        only = "allowed: the only value is " if len(values) == 1 else ""
        return f"{quoted} is not {only}{allowed}"
    if "RFC3339" in sentence or "timezone" in sentence:
        return f"expected {_WORDS['datetime']}"
    if not (expected := _EXPECTED.fullmatch(sentence)):
        return sentence.replace("`", "")[:1].lower() + sentence.replace("`", "")[1:]
    kinds, bounds, got = expected.groups()
    names = [_WORDS.get(one, one) for one in kinds.split(" | ")]
    if values:
        names = [allowed, *(["null"] if "null" in names else [])]
    wanted = " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
    if got is None:
        return f"expected {wanted}{bounds}"
    if given is not None:
        return f"expected {wanted}{bounds}, got {given[:_LONGEST]!r}"
    return f"expected {wanted}{bounds}, got {_word_of(got)}"


def word_for(value: object) -> str:
    """What kind of JSON value this is, in words."""
    return _word_of(_JSON.get(type(value), type(value).__name__))


def _word_of(got: str) -> str:
    return {"float": "a decimal number", "datetime": "a time"}.get(got) or _WORDS.get(got, got)


def _at(kind: inspect.Type, steps: list[str]) -> list[inspect.Type]:
    """The types that a value at this place may have, without unions."""
    if isinstance(kind, inspect.Metadata):
        return _at(kind.type, steps)
    if isinstance(kind, inspect.UnionType):
        return [found for one in kind.types for found in _at(one, steps)]
    if not steps:
        return [kind]
    step, rest = steps[0], steps[1:]
    if step.startswith("["):
        if isinstance(kind, inspect.DictType):
            return _at(kind.value_type, rest)
        if isinstance(kind, inspect.TupleType):
            return _at(kind.item_types[int(step[1:-1])], rest) if step[1:-1].isdigit() else []
        if isinstance(kind, inspect.CollectionType):
            return _at(kind.item_type, rest)
        return []
    if not isinstance(kind, inspect.StructType):
        return []
    if step == kind.tag_field:
        return [inspect.LiteralType((kind.tag,))]
    return [
        found
        for field in kind.fields
        if field.encode_name == step
        for found in _at(field.type, rest)
    ]


def _values(kinds: list[inspect.Type]) -> list[str]:
    """The values that are allowed, if these types list them."""
    found: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            found += [str(value) for value in kind.values]
        elif isinstance(kind, inspect.EnumType):
            found += [str(member.value) for member in kind.cls]
    return found


def _fields(kinds: list[inspect.Type]) -> set[str]:
    return {
        field.encode_name
        for kind in kinds
        if isinstance(kind, inspect.StructType)
        for field in kind.fields
    }
