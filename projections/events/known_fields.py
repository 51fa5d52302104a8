"""The fields a JSON document may have, at every level: what else is in it is named, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from projections.events.content import Usage
from projections.names import one_line


class ByType:
    """The fields of objects that say in their field ``type`` what they are."""

    def __init__(self, fields: Mapping[str, Known]) -> None:
        self.fields = fields


Known: TypeAlias = Mapping[str, "Known"] | ByType | None
"""Names of an object's fields, and what each may hold in turn; None: anything. An array's items
have the fields that stand for the array.
"""

_FREE: tuple[type, ...] = (Usage,)
"""Structs whose objects may have other fields: providers report more of a call than is read."""


def fields(names: str, **nested: Known) -> dict[str, Known]:
    """Known fields: those named (with blanks between) hold anything, the nested ones what is given
    for them.
    """
    return {**dict.fromkeys(names.split()), **nested}


@cache
def known_fields(struct: type[msgspec.Struct]) -> Mapping[str, Known]:
    """The fields of a struct."""
    known = _known(inspect.type_info(struct))
    assert isinstance(known, Mapping)
    return known


def _known(kind: inspect.Type) -> Known:
    if isinstance(kind, inspect.Metadata):
        return _known(kind.type)
    if isinstance(kind, inspect.ListType):
        return _known(kind.item_type)
    if isinstance(kind, inspect.StructType) and kind.cls not in _FREE:
        return fields(
            kind.tag_field or "",
            **{field.encode_name: _known(field.type) for field in kind.fields},
        )
    if isinstance(kind, inspect.UnionType):
        # A union has one struct, or structs with tags, or lists of such.
        structs = [one for one in kind.types if isinstance(one, inspect.StructType)]
        if len(structs) > 1:
            return ByType({str(one.tag): _known(one) for one in structs})
        return next((known for known in map(_known, kind.types) if known is not None), None)
    return None


def unknown_field(value: object, known: Known) -> str | None:
    """Where the first field stands that is not known, like ``content[0].colour``; None where all
    are.
    """
    if known is None:
        return None
    if isinstance(value, list):
        for i, item in enumerate(value):
            found = unknown_field(item, known)
            if found is not None:
                return f"[{i}].{found}"
    elif isinstance(value, dict) and (mine := _of(value, known)) is not None:
        for name, item in value.items():
            if name not in mine:
                return str(name)
            inner = mine[name]
            if inner is not None:
                found = unknown_field(item, inner)
                if found is not None:
                    return f"{name}{'' if found.startswith('[') else '.'}{found}"
    return None


def explain_unknown(field: str, what: str, known: Mapping[str, Known], more: str = "") -> str:
    """What an error says of a field that :func:`unknown_field` found in ``what``."""
    nested = any(mark in field for mark in "[.")
    has = "" if nested else f"it has {', '.join(sorted(known))}"
    notes = "; ".join(note for note in (has, more) if note)
    return f"field {one_line(field)}: unknown to {what}" + (f" ({notes})" if notes else "")


def without_unknown(value: Any, known: Known) -> Any:
    """The value without fields that are not known; it is not changed itself."""
    if known is None:
        return value
    if isinstance(value, list):
        return [without_unknown(item, known) for item in value]
    mine = _of(value, known) if isinstance(value, dict) else None
    if mine is None:
        return value
    return {name: without_unknown(item, mine[name]) for name, item in value.items() if name in mine}


def _of(value: dict[str, Any], known: Known) -> Mapping[str, Known] | None:
    """The fields of this object; None: anything."""
    if isinstance(known, ByType):
        kind = value.get("type")
        # Another check refuses a type that there is not.
        return known.fields.get(kind) if isinstance(kind, str) else None  # type: ignore[return-value]
    return known
