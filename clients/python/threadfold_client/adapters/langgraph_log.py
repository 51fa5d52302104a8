"""A graph's messages beside its conversation's log: which of them the log has, and where the two
part, because the graph changed or removed a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from langchain_core.messages import BaseMessage

from threadfold_client import AsyncClient, Conflict
from threadfold_client.adapters.langchain_messages import visible
from threadfold_client.adapters.langgraph_history import PREFIX, Backwards, is_lost

BEGIN = "threadfold-client.langgraph.v1"
"""The type of the event that a state's messages begin behind: the place to go back to before the
first of them. What is older belongs to an earlier state of the thread, or to none.
"""
ROLLBACK = f"{PREFIX}rollback-"
"""What the ids of a graph's rollbacks begin with; others' are for good."""
MAX_ID = 256
SPARE = 100
"""Messages that are looked through beyond as many as there are in a list that may be a part."""
_AGAIN = re.compile(r"~again-[0-9a-f]{12}$")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NUMBER = re.compile(r"(-[0-9]*)+\Z")


class Logged(NamedTuple):
    """An event that stands in the log; ``key`` and ``mark`` are those of a graph's message. A
    rollback must not take it from others if it ``is_lost`` then.
    """

    type: str
    position: str
    key: str | None
    mark: str
    is_lost: bool


class Reading(NamedTuple):
    """The end of a log, oldest first; ``newest`` is the position of its last event of all. By key,
    the messages that a rollback abandoned: ``left`` for another state of the graph, ``dropped`` by
    others, for good.
    """

    events: list[Logged]
    newest: str | None
    left: frozenset[str]
    dropped: frozenset[str]


class Difference(NamedTuple):
    """``cut`` is the first event (by its number) that the state does not have so, None if there is
    none; ``rest`` are the keys of the messages to append; ``begins``: they share nothing with what
    was said before.
    """

    cut: int | None
    rest: list[str]
    begins: bool = False


def event_id(message_id: str, again: str = "") -> str:
    """A message's event id; of a long one with a digest, so that no two become one. ``again`` makes
    it another one.
    """
    plain = f"{PREFIX}{message_id}"
    if again:
        return f"{key_of(message_id)}~again-{again}"
    return plain if len(plain) <= MAX_ID else _hashed(message_id)


def key_of(message_id: str) -> str:
    """What the event ids of one message have in common."""
    plain = f"{PREFIX}{message_id}"
    return plain if len(plain) <= MAX_ID - 20 else _hashed(message_id)


def mark_of(message: BaseMessage, *, renamed: bool = False) -> str:
    """A digest of what a model is sent of a message; ``renamed``: names of tools and ids of calls
    count as far as a window leaves them as they are, which changes them for a provider.
    """
    return _mark(visible(message), renamed)


async def read_log(
    client: AsyncClient,
    conversation: str,
    wanted: Collection[str],
    *,
    whole: bool,
    after: str | None = None,
    renamed: bool = False,
) -> Reading:
    """Read back to where a whole state begins in the log; of another one, until all of its messages
    are found, or enough is read.

    Args:
        wanted: the keys of the state's messages.
        after: a position that the log must have, else all that is in it now.
    """
    missing, seen = set(wanted), 0
    found: list[Logged] = []
    gone: dict[str, bool] = {}
    log = Backwards(client, conversation, after)
    async for event, undone in log.events():
        if event.get("spill") and event["id"].startswith(PREFIX):
            event = await client.event(conversation, event["position"])  # history has a preview
        one = _logged(event, renamed)
        if undone is not None:
            if one.key is not None:
                gone.setdefault(one.key, undone.startswith(ROLLBACK))
            continue
        complete = not whole and (not missing or seen >= len(wanted) + SPARE)
        found.append(one)
        if one.key is not None:
            missing.discard(one.key)
            seen += 1
        if complete or (whole and one.type == BEGIN):
            break
    for one in found:
        gone.pop(one.key or "", None)
    left = frozenset(key for key, by_graph in gone.items() if by_graph)
    return Reading(found[::-1], log.newest, left, frozenset(gone) - left)


def differ(
    reading: Reading, state: Mapping[str, str], *, whole: bool, cleared: bool = False
) -> Difference:
    """Where the log and the state (marks by key) part.

    Args:
        whole: the state has all messages: others that the log has were removed. Otherwise only
            changed ones count.
        cleared: the state is known to have had what the log has.
    """
    log = reading.events
    mine = [(i, event.key, event.mark) for i, event in enumerate(log) if event.key is not None]
    if not whole:
        cut = next((i for i, key, mark in mine if state.get(key, mark) != mark), None)
        stay = {key for i, key, _ in mine if cut is None or i < cut}
        return Difference(cut, [key for key in state if key not in stay], not log)
    keys = list(state)
    shared = [n for n, (_, key, _) in enumerate(mine) if key in state]
    begun = bool(log) and log[0].type == BEGIN
    is_branch = begun and (cleared or not mine or not reading.left.isdisjoint(keys))
    if not shared and not is_branch:
        return Difference(None, keys, begins=True)
    at = 0
    if not begun:  # an earlier release's: what is older may be of another state
        mine = mine[shared[0] :]
        at = keys.index(mine[0][1])
    for i, key, mark in mine:
        if at == len(keys) or key != keys[at] or mark != state[key]:
            return Difference(i, keys[at:])
        at += 1
    return Difference(None, keys[at:])


def why_not(log: Sequence[Logged], cut: int, rest: Collection[str], *, whole: bool) -> str | None:
    """Why a conversation cannot go back to before the cut, and have the rest behind it, None if it
    can.
    """
    behind = log[cut:]
    if any(event.is_lost for event in behind):
        return "others have appended to the conversation, or saved memories in it, since"
    if not whole and any(event.key and event.key not in rest for event in behind):
        return "the state lacks messages that came after it"
    return None if cut else "the conversation has no event before it"


def cannot_follow(conversation: str, what: str, reason: str) -> Conflict:
    """The error for a change that the conversation cannot follow."""
    return Conflict(
        f"message {what.removeprefix(PREFIX)} was changed, moved or removed in the graph's state,"
        f" and conversation {conversation} cannot follow: {reason}. Put the message back as it was,"
        " or give the graph a thread of its own",
        status=409,
    )


def _logged(event: Mapping[str, Any], renamed: bool) -> Logged:
    is_own = event["id"].startswith(PREFIX) and event["type"] in ("message", "tool.result")
    key = key_of(_AGAIN.sub("", event["id"])[len(PREFIX) :]) if is_own else None
    mark = _mark(event, renamed) if is_own else ""
    return Logged(event["type"], event["position"], key, mark, is_lost(event))


def _mark(flat: Mapping[str, Any], renamed: bool) -> str:
    content = flat.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = [
        flat.get("role"),
        flat.get("name"),
        flat.get("tool_call_id"),
        bool(flat.get("is_error")),
        [part for part in parts if part["type"] != "reasoning" and part.get("text") != ""],
        [
            (*(_as_sent(call) if renamed else (call["name"], call["id"])), call["arguments"])
            for call in flat.get("tool_calls") or ()
        ],
    ]
    return sha256(msgspec.json.encode(said, order="sorted", enc_hook=str)).hexdigest()[:16]


def _as_sent(call: Mapping[str, Any]) -> tuple[str, str]:
    """Of a call's name and id what is the same before and after a window changes them: other
    characters of a name become ``_``, the end of a long id a digest, and a repeated id is numbered.
    """
    return _NO_NAME.sub("_", call["name"])[:64], _NUMBER.sub("", call["id"][:26])


def _hashed(message_id: str) -> str:
    return f"{PREFIX}{sha256(message_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
