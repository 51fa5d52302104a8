"""Every generated document by file name: a JSON Schema of each type and form, and the AsyncAPI
document of the topics.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from threadfold.schemas.asyncapi import asyncapi_document
from threadfold.schemas.forms import APPENDED, envelope, flat
from threadfold.schemas.structs import DATA, Schema, components, used

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFS = "#/$defs/"


def schema_documents() -> dict[str, Schema]:
    """``message`` → the schema of that type's CloudEvent, ``message.flat`` → that of its flat form,
    for every type.
    """
    template = _DEFS + "{name}"
    parts = components(template)
    made = {}
    for kind in DATA:
        made[kind] = _whole(kind, envelope(kind, template), parts)
        if kind in APPENDED:
            made[f"{kind}.flat"] = _whole(f"{kind}.flat", flat(kind, parts), parts)
    return made


def documents() -> dict[str, Schema]:
    """Every document that ``docs/schemas`` holds, by file name."""
    return {name: json.loads(text) for name, text in texts().items()}


def write(folder: Path) -> list[Path]:
    """Write all documents into a folder, which is made where it is missing; returns what was
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in texts().items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


@lru_cache(maxsize=1)
def texts() -> dict[str, str]:
    """Every document as the text of its file."""
    made = {
        "asyncapi.json": asyncapi_document(),
        **{f"{name}.json": schema for name, schema in schema_documents().items()},
    }
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in made.items()
    }


def _whole(name: str, schema: Schema, parts: dict[str, Schema]) -> Schema:
    whole: Schema = {"$schema": DIALECT, "$id": f"urn:threadfold:schema:{name}:v1", **schema}
    if definitions := used(schema, parts, _DEFS):
        whole["$defs"] = definitions
    return whole
