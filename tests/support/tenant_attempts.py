"""What another tenant tries at each route of the gateway, and the routes that list a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.gateway import say

SECRET = "the-tide-is-at-nine"


@dataclass(frozen=True)
class Place:
    """What a request may name: a conversation and what belongs to it. Compared are those of a
    tenant and nobody's.
    """

    conversation: str
    position: str
    event: str
    cursor: str
    render: str
    suspension: str
    tenant: str
    key: str
    user: str = "ursula"
    turn: str = "turn-1"
    token: str = "0"
    listed: str = ""
    summary: str = "summary-1"
    memory: str = "b" * 64


@dataclass(frozen=True)
class Attempt:
    """A request by the other tenant. ``live``: its answer does not end, so what comes in a short
    time is what counts.
    """

    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    live: bool = False


Entry = Callable[[Place], list[Attempt]]


def at(path: str, *bodies: Any) -> Entry:
    """Attempts at a path of a conversation, one without and one with each body."""
    return lambda p: [
        Attempt(path.format(c=p.conversation, p=p), None if b is None else b(p))
        for b in (bodies or (None,))
    ]


TABLE: dict[tuple[str, str], Entry] = {
    ("GET", "/healthz"): at("/healthz"),
    ("GET", "/readyz"): at("/readyz"),
    ("GET", "/v1/conversations/{conversation}/context"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/context{query}")
        for query in (
            "",
            f"?after={p.position}",
            "?format=events",
            "?format=anthropic&max_tokens=2000",
        )
    ],
    ("GET", "/v1/conversations/{conversation}/history"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/history{query}")
        for query in ("", f"?before={p.cursor}", "?limit=500")
    ],
    ("GET", "/v1/conversations/{conversation}/events/{position}"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/events/{p.position}{query}")
        for query in ("", "?offset=0&limit=10")
    ],
    ("GET", "/v1/conversations/{conversation}/window"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/window{query}")
        for query in ("", f"?at={p.position}")
    ],
    ("GET", "/v1/conversations/{conversation}/working-memory"): at(
        "/v1/conversations/{c}/working-memory"
    ),
    ("GET", "/v1/conversations/{conversation}/positions"): at("/v1/conversations/{c}/positions"),
    ("GET", "/v1/conversations/{conversation}/renders"): at("/v1/conversations/{c}/renders"),
    ("GET", "/v1/renders/{render_id}"): at("/v1/renders/{p.render}"),
    ("POST", "/v1/conversations/{conversation}/renders"): at(
        "/v1/conversations/{c}/renders",
        lambda p: {
            "model": "m",
            "render_digest": "0" * 64,
            "position": p.position,
            "format": "openai",
            "tokens": 3,
        },
    ),
    ("POST", "/v1/conversations/{conversation}/events"): at(
        "/v1/conversations/{c}/events?wait=applied",
        lambda p: {"type": "resolution", "suspension_id": p.suspension, "outcome": "approved"},
        lambda p: {"type": "rollback", "to": p.event},
        lambda p: {"type": "rollback", "to": p.position},
        lambda p: {"type": "conversation.erased"},
        lambda p: {"id": p.event, **say("mine")},
    ),
    ("POST", "/v1/conversations/{conversation}/messages"): at(
        "/v1/conversations/{c}/messages?wait=applied", lambda p: {"role": "user", "content": "mine"}
    ),
    ("POST", "/v1/conversations/{conversation}/rollback"): at(
        "/v1/conversations/{c}/rollback?wait=applied",
        lambda p: {"to": p.event},
        lambda p: {"to": p.position},
    ),
    ("DELETE", "/v1/conversations/{conversation}"): at("/v1/conversations/{c}"),
    ("DELETE", "/v1/users/{user}"): at("/v1/users/{p.tenant}"),
    ("POST", "/v1/conversations/{conversation}/close"): at(
        "/v1/conversations/{c}/close?wait=applied"
    ),
    ("POST", "/v1/events"): at(
        "/v1/events?wait=applied",
        lambda p: {"conversation": p.conversation, **say("mine")},
        lambda p: {"conversation": f"{p.tenant}/{p.conversation}", **say("mine")},
        lambda p: {
            "conversation": p.conversation,
            "type": "resolution",
            "suspension_id": p.suspension,
            "outcome": "approved",
        },
    ),
    ("POST", "/v1/conversations/{conversation}/compact"): at(
        "/v1/conversations/{c}/compact?wait=applied"
    ),
    ("GET", "/v1/conversations"): lambda p: [
        Attempt(f"/v1/conversations{query}") for query in ("", f"?before={p.listed}")
    ],
    ("GET", "/v1/suspensions"): lambda p: [
        Attempt(f"/v1/suspensions{query}") for query in ("", f"?before={p.listed}")
    ],
    ("GET", "/v1/conversations/{conversation}/summaries"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/summaries{query}")
        for query in ("", f"?before={p.cursor}")
    ],
    ("GET", "/v1/conversations/{conversation}/turns"): at("/v1/conversations/{c}/turns"),
    ("POST", "/v1/conversations/{conversation}/turns"): at(
        "/v1/conversations/{c}/turns",
        lambda p: {"turn_id": "mine"},
        lambda p: {"turn_id": "mine", "policy": "interrupt"},
    ),
    ("POST", "/v1/conversations/{conversation}/turns/{turn_id}/renew"): lambda p: [
        Attempt(
            f"/v1/conversations/{p.conversation}/turns/{p.turn}/renew",
            headers={"Fencing-Token": p.token},
        )
    ],
    ("POST", "/v1/conversations/{conversation}/turns/{turn_id}/end"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/turns/{p.turn}/end", headers=headers)
        for headers in ({"Fencing-Token": p.token}, {})
    ],
    ("GET", "/v1/conversations/{conversation}/stream"): lambda p: [
        Attempt(f"/v1/conversations/{p.conversation}/stream{query}", live=True)
        for query in ("", f"?after={p.position}")
    ],
    ("GET", "/v1/summaries/stream"): lambda p: [
        Attempt(f"/v1/summaries/stream{q}", live=True) for q in ("", "?from=beginning")
    ],
    ("POST", "/v1/conversations/{conversation}/partial"): at(
        "/v1/conversations/{c}/partial", lambda p: {"turn_id": p.turn, "delta": "mine", "offset": 0}
    ),
    ("GET", "/v1/memories"): lambda p: [
        Attempt(f"/v1/memories{query}")
        for query in ("", f"?conversation={p.conversation}", f"?before={p.listed}")
    ],
    ("GET", "/v1/memories/stats"): at("/v1/memories/stats"),
    ("GET", "/v1/memories/{memory_id}"): at("/v1/memories/{p.memory}"),
    ("GET", "/v1/memories/{memory_id}/timeline"): at("/v1/memories/{p.memory}/timeline"),
    ("GET", "/v1/skills"): at("/v1/skills"),
    ("POST", "/v1/memories"): at(
        "/v1/memories", lambda p: {"text": "mine", "conversation": p.conversation}
    ),
    ("POST", "/v1/memories/search"): at(
        "/v1/memories/search",
        lambda p: {"query": SECRET},
        lambda p: {"query": SECRET, "conversation": p.conversation},
    ),
    ("POST", "/v1/memories/{memory_id}/outcome"): at(
        "/v1/memories/{p.memory}/outcome", lambda p: {"succeeded": False}
    ),
    ("POST", "/v1/skills"): at(
        "/v1/skills",
        lambda p: {"intent": "mine", "doc_markdown": "mine", "conversation": p.conversation},
    ),
    ("DELETE", "/v1/memories/{memory_id}"): at("/v1/memories/{p.memory}?hard=true"),
    ("DELETE", "/v1/skills/{memory_id}"): at("/v1/skills/{p.memory}"),
    ("GET", "/asyncapi.json"): at("/asyncapi.json"),
    ("GET", "/schemas/{name}.json"): at("/schemas/message.json"),
    ("GET", "/v1/me"): at("/v1/me"),
    ("GET", "/v1/me/hour"): at("/v1/me/hour"),
    # A tenant mints for itself alone, and a key without the scope sees no keys of tokens.
    ("POST", "/v1/tokens"): at("/v1/tokens", lambda p: {"user": p.user, "verbs": ["fly"]}),
    ("GET", "/v1/tokens/keys"): at("/v1/tokens/keys"),
    ("PUT", "/v1/tokens/keys"): at("/v1/tokens/keys", lambda p: {"keys": [{"kid": p.key}]}),
    ("DELETE", "/v1/tokens/keys"): at("/v1/tokens/keys"),
    # Of the administration, a key without the scope sees nothing, whatever tenant is named.
    ("GET", "/v1/tenants"): at("/v1/tenants"),
    ("GET", "/v1/workers/metrics"): at("/v1/workers/metrics"),
    ("GET", "/v1/platform"): at("/v1/platform"),
    ("GET", "/v1/generations"): at("/v1/generations"),
    ("POST", "/v1/generations"): at("/v1/generations", lambda p: {}),
    ("POST", "/v1/generations/compare"): at(
        "/v1/generations/compare", lambda p: {"tenant": p.tenant}
    ),
    ("POST", "/v1/generations/compare/window"): at(
        "/v1/generations/compare/window",
        lambda p: {"tenant": p.tenant, "conversation": p.conversation},
    ),
    ("POST", "/v1/generations/{number}/switch"): at("/v1/generations/1/switch", lambda p: {}),
    ("DELETE", "/v1/generations/{number}"): at("/v1/generations/1"),
    ("GET", "/v1/dead-letters"): at("/v1/dead-letters?tenant={p.tenant}"),
    ("GET", "/v1/dead-letters/{position}"): at("/v1/dead-letters/{p.position}"),
    ("POST", "/v1/dead-letters/{position}/retry"): at("/v1/dead-letters/{p.position}/retry"),
    ("POST", "/v1/dead-letters/{position}/drop"): at("/v1/dead-letters/{p.position}/drop"),
    ("POST", "/v1/tenants"): at("/v1/tenants", lambda p: {"name": p.tenant}),
    ("GET", "/v1/tenants/{tenant}"): at("/v1/tenants/{p.tenant}"),
    ("PATCH", "/v1/tenants/{tenant}"): at(
        "/v1/tenants/{p.tenant}", lambda p: {"quota": {"requests_per_second": 1}}
    ),
    ("GET", "/v1/tenants/{tenant}/keys"): at("/v1/tenants/{p.tenant}/keys"),
    ("POST", "/v1/tenants/{tenant}/keys"): at(
        "/v1/tenants/{p.tenant}/keys", lambda p: {"scopes": ["read"]}
    ),
    ("DELETE", "/v1/tenants/{tenant}/keys"): at("/v1/tenants/{p.tenant}/keys"),
    ("DELETE", "/v1/tenants/{tenant}/keys/{key}"): at("/v1/tenants/{p.tenant}/keys/{p.key}"),
}
"""What another tenant tries at each route. Streams: ``lambda p: [Attempt(path, live=True)]``."""


LISTS = {
    ("GET", "/v1/conversations"),
    ("GET", "/v1/me"),
    ("GET", "/v1/memories"),
    ("GET", "/v1/memories/stats"),
    ("GET", "/v1/skills"),
    ("POST", "/v1/memories/search"),
}
"""Routes that answer an end user with what is the user's own."""
