"""The keys of a memory store in Redis, and what a batch of news writes under them.

Everything of one store stands under one prefix with a number, so a store can be built beside the
live one; ``…:live`` names the one that counts. All share a hash tag: a transaction covers them.

=============== ==================================================================================
``c``           checkpoints: partition → offset
``r:T:ID``      an id's facts (``kept``) and what they come to (``records``), with the fields of the
                index ``r``
``b:LOG``       what was taken back of a log
``g:LOG``       what a log taught: offset → id
``p:T:ID``      the composites that an id is a source of
``a:T``, ``u:U`` ids of a tenant, of a user, by time
``tenants``     the tenants that there are, by their hashes
``z:CODE``      how many texts and words a tenant, user or session has
``n``           the number of the next text
``t``           texts by number: id and tenant
``gone``        how often texts were deleted
``m``           the models that have vectors here: the length of their vectors
``h:M``         the numbers of the texts that have a vector of a model
``v:M:N``       the vector of a text, with the fields of the index ``v:M``
=============== ==================================================================================

Names of tenants, users and channels are hashed: what is asked for is no part of a query's syntax.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from streams.memory.kept import Place, Taught
from streams.memory.key_changes import Changes, Renewed
from streams.memory.key_words import code_of, indexed_words

pack = msgspec.msgpack.Encoder().encode
INDEX = (
    *(f"{name} TAG" for name in ("tenant", "user", "channel", "kind", "type", "stands")),
    "text TEXT NOSTEM WEIGHT 1",
    "dates TEXT NOSTEM WEIGHT 0.5",
    "speaker TEXT NOSTEM WEIGHT 1",
    "tags TEXT NOSTEM WEIGHT 1",
)
"""The fields of the index of records. Its words are stems already."""


def tags_query(conditions: Iterable[tuple[str, list[str]]]) -> str:
    """Conditions (``streams.memory.key_words``) in a query of the engine."""
    return " ".join(f"@{name}:{{{'|'.join(values)}}}" for name, values in conditions)


class StoreKeys:
    """The keys of one store."""

    def __init__(self, base: str, number: int) -> None:
        self.number = number
        self.prefix = f"{base}:{number}:"
        self.records = f"{self.prefix}r"
        """The index of records."""

    def __call__(self, *parts: str) -> str:
        return self.prefix + ":".join(parts)

    def of_place(self, place: Place) -> str:
        """Where an id of a tenant is kept."""
        return self("r", code_of(place[0]), place[1])

    def fusing(self, place: Place) -> str:
        """The composites that an id is a source of."""
        return self("p", code_of(place[0]), place[1])

    def by_time(self, tenant: str, user: str | None) -> str:
        """The ids of a tenant, or of a user, by time."""
        return self("a", code_of(tenant)) if user is None else self("u", code_of(tenant, user))

    def model(self, model: str) -> str:
        """The index of a model's vectors, which also begins their keys."""
        return self("v", code_of(model))

    def with_vector(self, model: str) -> str:
        """The numbers of the texts that have a vector of a model."""
        return self("h", code_of(model))


def write(
    pipe: Any,
    keys: StoreKeys,
    changes: Changes,
    checkpoints: Mapping[int, int],
    models: Collection[str],
) -> None:
    """Queue all that a batch changes.

    Args:
        models: those that may have vectors of texts that go.
    """
    for log, state in changes.logs.items():
        pipe.set(keys("b", str(log)), pack(state))
    if changes.erased:
        pipe.unlink(*(keys("g", str(log)) for log in changes.erased))
    for log, events in changes.taught.items():
        if log not in changes.erased:
            _write_taught(pipe, keys("g", str(log)), events)
    for place, renewed in changes.kept.items():
        _write_place(pipe, keys, place, renewed)
    for (tenant, memory_id), source in changes.parted:
        pipe.srem(keys.fusing((tenant, source)), memory_id)
    for code, size in changes.sizes.items():
        name = keys("z", code_of(*code))
        pipe.set(name, f"{size[0]} {size[1]}") if size[0] > 0 else pipe.unlink(name)
    _write_texts(pipe, keys, changes, models)
    pipe.set(keys("n"), changes.next_text)
    if checkpoints:
        pipe.hset(keys("c"), mapping={str(p): at for p, at in checkpoints.items()})


def _write_texts(pipe: Any, keys: StoreKeys, changes: Changes, models: Collection[str]) -> None:
    for (tenant, memory_id), scope in changes.left:
        if scope.user is not None:
            pipe.zrem(keys.by_time(tenant, scope.user), memory_id)
    for number, (tenant, memory_id), _ in changes.new_texts:
        pipe.zadd(keys("t"), {pack((number, tenant, memory_id)): number})
    for number in changes.gone_texts:
        pipe.zremrangebyscore(keys("t"), number, number)
        for model in models:
            pipe.unlink(f"{keys.model(model)}:{number}")
            pipe.srem(keys.with_vector(model), number)
    if changes.gone_texts:
        pipe.incr(keys("gone"))


def _write_taught(pipe: Any, name: str, events: Mapping[int, Taught | None]) -> None:
    gone = [str(offset) for offset, one in events.items() if one is None]
    new = {str(offset): pack(one) for offset, one in events.items() if one is not None}
    if gone:
        pipe.hdel(name, *gone)
    if new:
        pipe.hset(name, mapping=new)


def _write_place(pipe: Any, keys: StoreKeys, place: Place, renewed: Renewed | None) -> None:
    tenant, memory_id = place
    name = keys.of_place(place)
    # Words of what went must not stay: the whole hash is written anew.
    pipe.unlink(name)
    if renewed is None or not renewed.scopes:
        pipe.zrem(keys.by_time(tenant, None), memory_id)
    if renewed is None:
        return
    created = renewed.created
    for record in renewed.records:
        created = record.created
    pipe.hset(name, mapping=_fields(tenant, renewed))
    if renewed.scopes:
        pipe.hset(keys("tenants"), code_of(tenant), tenant)
        pipe.zadd(keys.by_time(tenant, None), {memory_id: created})
        for user in {scope.user for scope in renewed.scopes} - {None}:
            pipe.zadd(keys.by_time(tenant, user), {memory_id: created})
    for source in renewed.sources:
        pipe.sadd(keys.fusing((tenant, source)), memory_id)


def _fields(tenant: str, renewed: Renewed) -> dict[str, Any]:
    found: dict[str, Any] = {"kept": pack(renewed.kept), "records": pack(renewed.records)}
    if not renewed.texts:
        return found
    words = indexed_words(renewed.texts.values())
    scopes = {one.scope for one in renewed.texts.values()}
    return {
        **found,
        **{name: text for name, text in words.items() if text.strip()},
        "tenant": code_of(tenant),
        "user": ",".join(code_of(one.user) for one in scopes if one.user is not None),
        "channel": ",".join(code_of(one.channel) for one in scopes if one.channel is not None),
        "kind": ",".join({one.kind for one in renewed.texts.values()}),
        "type": ",".join({code_of(name) for one in renewed.texts.values() for name in one.types}),
        "stands": str(int(any(record.stands for record in renewed.records))),
    }
