"""Schemas of what callers send: as ``projections.events.known_fields`` refuses unknown fields, at
every level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.events.known_fields import ByType, Known
from threadfold.schemas.structs import Schema


def closed(schema: Any, known: Known, parts: Mapping[str, Schema]) -> Any:
    """A schema whose objects may have the known fields only, with the ``parts`` that it refers to
    in their places. A field that is known and not described may hold anything.
    """
    if "$ref" in schema:
        return closed(parts[schema["$ref"].rpartition("/")[2]], known, parts)
    made = {name: value for name, value in schema.items() if name != "discriminator"}
    if "anyOf" in made:
        made["anyOf"] = [closed(one, known, parts) for one in made["anyOf"]]
    if "items" in made:
        made["items"] = closed(made["items"], known, parts)
    if "properties" not in made:
        return made
    own = _of(made["properties"], known) if isinstance(known, ByType) else known
    described = {
        name: closed(value, None if own is None else own.get(name), parts)
        for name, value in made["properties"].items()
    }
    if own is None:
        return {**made, "properties": described}
    others: Schema = {name: {} for name in own if name not in described}
    return {**made, "properties": {**described, **others}, "additionalProperties": False}


def _of(properties: Schema, known: ByType) -> Mapping[str, Known] | None:
    """The fields of an object whose ``type`` these properties fix."""
    kind = properties["type"]
    found = known.fields.get(kind.get("const") or kind["enum"][0])
    return found if isinstance(found, Mapping) else None
