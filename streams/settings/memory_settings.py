"""The settings of the long-term memory: its store, its vectors, and what it asks models.

| setting | names | who asks |
|---|---|---|
| ``memory_embeddings`` | an endpoint of ``embeddings``, or ``minilm`` (its files: ``embeddings_folder``) | gateways, for vectors |
| ``memory_model`` | an endpoint of ``summarizers`` | workers, for what a conversation teaches |
| ``memory_planner`` | the same | gateways, for the plan of a search |
| ``memory_hyde`` | the same | gateways, for an imagined answer that skills are searched with |

Empty, nobody is asked: there are no vectors, and rules do the rest. A search waits
``memory_model_seconds`` for its plan, for its answer, and for an endpoint's vectors of its words,
then it goes on without.

``memory_store`` is the folder of this process' store (LanceDB's: ``lancedb:`` and the folder), or
``redis``: one in Redis that all share (``streams.memory.stores``); without it a gateway feeds a temporary one at every start. Searches find what was said word for word if
``memory_turns``, and with ``memory_turn_vectors`` by its meaning. ``memory_use_counts``: what they
give out is counted, as events in the log.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import msgspec

from projections.errors import InvalidSettings
from streams.settings.endpoints import MINILM, EmbeddingsSettings, EndpointSettings
from streams.settings.kafka_login import KafkaLogin

ASKED = ("memory_model", "memory_planner", "memory_hyde")
"""Settings that name an endpoint of ``summarizers``."""
_NONE = ("none", "no", "off", "false", "disabled", "memory", "ram", "temporary")
_KINDS = frozenset((*_NONE, "sqlite", "sqlite3", "lance", "lancedb"))
"""Words that look like a kind of store, and are none."""


class MemorySettings(KafkaLogin, frozen=True, kw_only=True):
    """The settings of the long-term memory, and of the endpoints that it may ask."""

    summarizers: dict[str, EndpointSettings] = msgspec.field(default_factory=dict)
    embeddings: dict[str, EmbeddingsSettings] = msgspec.field(default_factory=dict)
    embeddings_folder: str = ""
    memory_store: str = ""
    memory_turns: bool = True
    memory_turn_vectors: bool = True
    memory_use_counts: bool = True
    memory_embeddings: str = ""
    memory_model: str = ""
    memory_planner: str = ""
    memory_hyde: str = ""
    memory_model_seconds: float = 2.0


def check_memory(settings: MemorySettings) -> None:
    """Raise InvalidSettings where a setting names an endpoint, or a kind of store, that there is
    not.
    """
    _check_store(settings.memory_store)
    _check(settings, "memory_embeddings", "embeddings", settings.embeddings, (MINILM,))
    for name in ASKED:
        _check(settings, name, "summarizers", settings.summarizers)


def _check_store(value: str) -> None:
    kind, _, folder = value.partition(":")
    if value in ("", "redis") or "/" in kind or (kind == "lancedb" and folder):
        return
    word = kind.strip().lower()
    if word in _KINDS or get_close_matches(word, ["redis"], cutoff=0.8):
        raise InvalidSettings(
            f"setting 'memory_store' is {value[:60]!r}: it must be redis, a folder, lancedb: and"
            " a folder, or empty for a temporary file. For a folder of that name give"
            f" ./{word[:60]}"
        )


def _check(
    settings: MemorySettings,
    name: str,
    table: str,
    endpoints: Mapping[str, object],
    others: tuple[str, ...] = (),
) -> None:
    value, known = getattr(settings, name), (*others, *endpoints)
    if value and value not in known:
        allowed = (
            f"it must be one of {', '.join(known)}, or empty for none"
            if known
            else f"there is no endpoint [{table}.NAME]: add one, or leave the setting out"
        )
        raise InvalidSettings(f"setting {name!r} is {value[:60]!r}: {allowed}")
