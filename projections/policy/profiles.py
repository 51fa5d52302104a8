"""Profiles and reducers: named sets of policy keys, and the typed forms of what a policy's
``reducers`` may list.

A profile is nothing but values for some keys. Naming one in a layer of the policy sets these keys
there: a wider layer's values for them give way, a narrower layer's (or this layer's own) win.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

MAX_TEMPLATE = 1_000
"""Characters of a replacement's template."""
DEFAULT_TEMPLATE = "[{tool_name} {call_id}: {result_length} characters]"
"""What ``"replacement": "template"`` stands for: about ten tokens."""
CALLABLE = "callable:"
"""How a replacement names a callable that the deployment's settings register."""

_Count = Annotated[int, Meta(ge=0, le=10**9)]


class _Reducer(Struct, tag_field="name", frozen=True, forbid_unknown_fields=True):
    """One entry of a policy's ``reducers``."""


class Limiting(_Reducer, frozen=True):
    """Limits how many turns or messages stay."""


class Shortening(_Reducer, frozen=True):
    """Shortens tool results."""


class KeepTurns(Limiting, tag="keep_last_n_turns", frozen=True):
    """Leave out all but the last ``n`` turns; a turn begins with a user's message."""

    n: _Count


class KeepMessages(Limiting, tag="keep_last_n_messages", frozen=True):
    """Leave out all but the last ``n`` messages, between groups."""

    n: _Count


class CompactResults(Shortening, tag="compact_tool_results", frozen=True):
    """Replace the texts of tool results but the last ``keep_last_n``; None: the calls and their
    results go.
    """

    replacement: Annotated[str, Meta(max_length=MAX_TEMPLATE)] | None = DEFAULT_TEMPLATE
    keep_last_n: _Count = 0


class SummarizeResults(Shortening, tag="summarize_tool_results", frozen=True):
    """Keep the first ``top`` items of a list, or rows of a table, with how many there were and
    where the whole stands.
    """

    top: Annotated[int, Meta(ge=1, le=10**6)] = 5


class Summarize(_Reducer, tag="summarize", frozen=True):
    """Asks for summaries, as a last step after the free ones: profile ``composed`` has them only
    with it.
    """


Reducer = KeepTurns | KeepMessages | CompactResults | SummarizeResults | Summarize

PROFILES: dict[str, dict[str, Any]] = {
    "bounded": {},
    "pruning": {
        "compaction_ratio": 0.70,
        "reducers": [{"name": "compact_tool_results", "replacement": "template", "keep_last_n": 3}],
    },
    "composed": {"trim_tool_results": False},
    "sliding": {
        "reducers": [{"name": "keep_last_n_messages", "n": 10}],
        "idle_close_seconds": 1800,
        "pinned_max_tokens": 300,
        "close_summarizer": "cheap",
    },
}
"""The keys each profile sets; all others keep their defaults."""


def merged(layers: tuple[dict[str, Any] | None, ...]) -> dict[str, Any]:
    """Policy layers (widest first) as one, profiles resolved; values are not checked."""
    own: dict[str, Any] = {}
    profile: Any = None
    for layer in layers:
        if layer and "profile" in layer:
            profile = layer["profile"]
            for name in PROFILES.get(profile, ()) if isinstance(profile, str) else ():
                own.pop(name, None)
        own.update(layer or {})
    return {**(PROFILES.get(profile, {}) if isinstance(profile, str) else {}), **own}
