"""The rows of a memory store in LanceDB, and those that a batch of news writes.

All stand in one table, so that one commit covers what a batch changes. A row that is to go is
written empty, in the same commit, and deleted later: no look finds it meanwhile.

============ =====================================================================================
key          is
============ =====================================================================================
``c``        checkpoints: partition → offset
``n``        the number of the next text
``m``        the models that have vectors, and the one in use
``u``        texts were deleted that files still hold
``T:T``      a tenant's name
``r:T:ID``   an id's facts (``value``) and what they come to (``records``), with the words that find
             it
``b:LOG``    what was taken back of a log
``g:LOG:N``  what an event of a log taught
``p:T:ID:C`` a composite that an id is a source of
``z:CODE``   how many texts and words a tenant, user or session has
``t:N``      a text by its number: tenant and id
============ =====================================================================================

``part`` is what rows are read together by. Names are hashed: no name is part of a query's syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa

from projections.names import Key
from streams.memory.kept import Code, Place
from streams.memory.key_changes import Changes, Renewed
from streams.memory.key_words import code_of, indexed_words

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("part", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("records", pa.binary()),
        pa.field("at", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("tenant", pa.string()),
        pa.field("user", pa.string()),
        pa.field("channel", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("types", pa.list_(pa.string())),
        pa.field("stands", pa.bool_()),
        pa.field("words", pa.string()),
    ]
)
CHECKPOINTS, NEXT, MODELS, TEXTS, TENANTS, UNWIPED = "c", "n", "m", "t", "T", "u"
Row = dict[str, Any]
pack = msgspec.msgpack.Encoder().encode
_ID = re.compile("[0-9a-f]{64}")


def named(memory_id: str) -> str:
    """An id as keys have it; one that no record can have is hashed."""
    return memory_id if _ID.fullmatch(memory_id) else f"x{sha256(memory_id.encode()).hexdigest()}"


def place_key(place: Place) -> str:
    """Where an id of a tenant is kept."""
    return f"r:{code_of(place[0])}:{named(place[1])}"


def log_key(log: Key) -> str:
    """Where it is kept what was taken back of a log."""
    return f"b:{code_of(str(log))}"


def taught_part(log: Key) -> str:
    """What the rows have in common that say what a log taught."""
    return f"g:{code_of(str(log))}"


def fusing_part(place: Place) -> str:
    """What the rows have in common that name the composites of an id."""
    return f"p:{code_of(place[0])}:{named(place[1])}"


def size_key(code: Code) -> str:
    """Where the size of a tenant, user or session is kept."""
    return f"z:{code_of(*code)}"


def text_key(number: int) -> str:
    """Where a text is named."""
    return f"{TEXTS}:{number}"


def row(key: str, part: str | None = None, **fields: Any) -> Row:
    """A row; one without fields is to go."""
    return dict.fromkeys(SCHEMA.names) | {"key": key, "part": part} | fields


def table_of(rows: list[Row]) -> pa.Table:
    """Rows as they are written."""
    return pa.Table.from_pylist(rows, SCHEMA)


def rows_of(
    changes: Changes, checkpoints: Mapping[int, int], taught: Mapping[Key, Sequence[int]]
) -> list[Row]:
    """The rows that a batch writes, each key once.

    Args:
        checkpoints: all of them after the batch.
        taught: the offsets of the events that an erased log taught.
    """
    found = {one["key"]: one for one in _rows(changes, taught)}
    found[NEXT] = row(NEXT, NEXT, at=changes.next_text)
    if checkpoints:
        found[CHECKPOINTS] = row(CHECKPOINTS, CHECKPOINTS, value=pack(checkpoints))
    return list(found.values())


def _rows(changes: Changes, taught: Mapping[Key, Sequence[int]]) -> Iterator[Row]:
    for log, state in changes.logs.items():
        yield row(log_key(log), log_key(log), value=pack(state))
    for log, offsets in taught.items():
        yield from (row(f"{taught_part(log)}:{offset}") for offset in offsets)
    for log, events in changes.taught.items():
        part = taught_part(log)
        for offset, one in events.items():
            kept = one is not None and log not in changes.erased
            fields = {"value": pack(one), "at": offset} if kept else {}
            yield row(f"{part}:{offset}", part if kept else None, **fields)
    for (tenant, memory_id), source in changes.parted:
        yield row(f"{fusing_part((tenant, source))}:{named(memory_id)}")
    for place, renewed in changes.kept.items():
        yield from _rows_of_place(place, renewed)
    for code, size in changes.sizes.items():
        key = size_key(code)
        yield row(key, key, value=pack(size)) if size[0] > 0 else row(key)
    for number in changes.gone_texts:
        yield row(text_key(number))
    for number, place, _ in changes.new_texts:
        yield row(text_key(number), TEXTS, at=number, value=pack(place))


def _rows_of_place(place: Place, renewed: Renewed | None) -> Iterator[Row]:
    (tenant, memory_id), key = place, place_key(place)
    if renewed is None:
        yield row(key)
        return
    fields: Row = {"value": pack(renewed.kept), "records": pack(renewed.records)}
    if renewed.scopes:
        scope = next(iter(renewed.scopes))  # its id says whose it is
        yield row(f"{TENANTS}:{code_of(tenant)}", TENANTS, name=tenant)
        fields |= {
            "name": memory_id,
            "at": renewed.records[-1].created if renewed.records else renewed.created,
            "tenant": code_of(tenant),
            "user": None if scope.user is None else code_of(scope.user),
            "channel": None if scope.channel is None else code_of(scope.channel),
        }
    if renewed.texts:
        texts = renewed.texts.values()
        fields |= {
            "kind": next(iter(texts)).kind,
            "types": sorted({code_of(name) for one in texts for name in one.types}),
            "stands": any(record.stands for record in renewed.records),
            "words": " ".join(indexed_words(texts).values()),
        }
    yield row(key, key, **fields)
    for source in renewed.sources:
        part = fusing_part((tenant, source))
        yield row(f"{part}:{named(memory_id)}", part, name=memory_id)


def where(conditions: Iterable[tuple[str, list[str]]]) -> str:
    """Conditions (``streams.memory.key_words``) in SQL."""
    return " AND ".join(_condition(name, values) for name, values in conditions)


def _condition(name: str, values: list[str]) -> str:
    quoted = ", ".join(f"'{value}'" for value in values)
    if name == "stands":
        return "stands = true"
    if name == "type":
        return f"array_has_any(types, make_array({quoted}))"
    return f"{name} = {quoted}" if len(values) == 1 else f"{name} IN ({quoted})"
