"""LangChain's messages as events, and back; pure but for langchain-core's own types."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from threadfold_client.adapters.content import converted, restored
from threadfold_client.adapters.kept import is_stored, keep, kept

PROVIDER = "langchain"
_STORED = "threadfold_stored"
"""False in the ``additional_kwargs`` of a message that stands in the window and not in the log."""
_ROLES = {HumanMessage: "user", AIMessage: "assistant", SystemMessage: "system"}
"""Roles by class: the pieces of a streamed answer, joined, are an ``AIMessage`` of another type."""
_USAGE = ("input_tokens", "output_tokens", "total_tokens")


def to_event(message: BaseMessage) -> dict[str, Any]:
    """One message as a flat event; :func:`to_message` gives it back equal.

    Of a tool's message ``tool_call_id``, ``name``, content and whether it is an error are kept.
    """
    flat, holes = _flat(message)
    if isinstance(message, ToolMessage):
        return flat
    if (
        _plain({name: value for name, value in flat.items() if name not in ("usage", "model")})
        == message
    ):
        return flat
    document = message_to_dict(message)
    document["data"]["content"] = None
    return keep(flat, PROVIDER, {"message": _json(document), "holes": holes})


def visible(message: BaseMessage) -> dict[str, Any]:
    """The event of a message without what is kept beside it: all that a model is sent."""
    return _flat(message)[0]


def _flat(message: BaseMessage) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
    """A message as an event, and the holes of its content."""
    if isinstance(message, ToolMessage):
        return _result(message, converted(message.content, complete=True).content), None
    said = message.role if isinstance(message, ChatMessage) else "user"
    role = next((role for kind, role in _ROLES.items() if isinstance(message, kind)), said)
    flat: dict[str, Any] = {
        "type": "message",
        "role": role if role in ("user", "assistant", "system", "developer") else "user",
    }
    made = converted(message.content, complete=flat["role"] == "user")
    flat["content"] = made.content or ""
    if message.name:
        flat["name"] = message.name
    if isinstance(message, AIMessage):
        flat |= _of_model(message)
    if flat.get("tool_calls") and not flat["content"]:
        flat["content"] = None
    return flat, made.holes


def to_message(flat: dict[str, Any]) -> BaseMessage:
    """The message of a rendered event; in the plain form if it was shortened, so that what was kept
    does not fit any more.
    """
    what = kept(flat, PROVIDER)
    if isinstance(what, dict):
        try:
            document = what["message"]
            document["data"]["content"] = restored(flat.get("content"), what["holes"])
            (message,) = messages_from_dict([document])
        except (ValueError, KeyError, TypeError):
            return _plain(flat)
        if not isinstance(message, AIMessage):
            return message
        # A call that was left out has no result any more: no provider takes it.
        calls = flat.get("tool_calls") or ()
        return _renamed(message, calls) if len(_calls(message)) == len(calls) else _plain(flat)
    return _plain(flat)


def to_messages(flats: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """All of them, in order; those that are no events of the conversation are marked
    (:func:`is_invented`).
    """
    messages = []
    for flat in flats:
        message = to_message(flat)
        if not is_stored(flat):
            message.additional_kwargs[_STORED] = False
        messages.append(message)
    return messages


def is_invented(message: BaseMessage) -> bool:
    """Whether it is the result that a render gave to a call without one, or the last message that
    says that a late result has come.
    """
    made = message.additional_kwargs.get(_STORED) is False
    return made and isinstance(message, ToolMessage | HumanMessage)


def _renamed(message: AIMessage, calls: Sequence[dict[str, Any]]) -> AIMessage:
    """The message with the ids and names of its rendered calls, everywhere it names them: results
    are rendered with these.
    """
    changes: dict[str, deque[tuple[str, str, str]]] = {}
    for mine, its in zip(_calls(message), calls, strict=True):
        # A call without an id gets that of its result, which had to be given some id.
        before = mine["name"] or its["name"]
        changes.setdefault(mine["id"] or "", deque()).append((before, its["id"], its["name"]))
    if all(
        (id_, name) == (old, before)
        for old, several in changes.items()
        for before, id_, name in several
    ):
        return message
    raw = message.additional_kwargs.get("tool_calls")
    chunks = getattr(message, "tool_call_chunks", None)
    for places in (_calls(message), message.content, raw, chunks):
        left = {old: deque(several) for old, several in changes.items()}
        for place in places if isinstance(places, list) else ():
            if isinstance(place, dict):
                _rename(place, left)
    return message


def _calls(message: AIMessage) -> list[Any]:
    """A model's calls; last those whose arguments are no JSON, which get results, too."""
    return [*message.tool_calls, *message.invalid_tool_calls]


def _rename(place: dict[str, Any], left: dict[str, deque[tuple[str, str, str]]]) -> None:
    """Give the next new id and name to what names a call: a call, a block of the content, or a call
    as a provider wrote it.
    """
    key = "call_id" if "call_id" in place else "id"
    old = place.get(key) or ""
    several = left.get(old)
    named = [one for one in (place, place.get("function")) if isinstance(one, dict)]
    if not several or not (old or _is_call(named, several[0][0])):
        return
    before, place[key], name = several.popleft()
    for one in named:
        if one.get("name") == before:
            one["name"] = name


def _is_call(named: Sequence[dict[str, Any]], name: str) -> bool:
    """Whether something without an id is the call of this name: it may be a text as well."""
    return any("name" in one and (one["name"] or name) == name for one in named)


def _of_model(message: AIMessage) -> dict[str, Any]:
    """Calls, the model's name, and what it reported of its usage."""
    found: dict[str, Any] = {}
    if calls := _calls(message):
        found["tool_calls"] = [
            {
                "id": call["id"] or f"call-{i}",
                "name": call["name"] or "unknown",
                "arguments": _text_of(call["args"]),
            }
            for i, call in enumerate(calls)
        ]
    usage = {
        name: value for name, value in (message.usage_metadata or {}).items() if name in _USAGE
    }
    if usage:
        found["usage"] = usage
    model = message.response_metadata.get("model_name") or message.response_metadata.get("model")
    if isinstance(model, str):
        found["model"] = model
    return found


def _text_of(arguments: Any) -> str:
    """A call's arguments, which are text where they are no JSON."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments or {}, ensure_ascii=False)


def _result(message: ToolMessage, content: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "type": "tool.result",
        "tool_call_id": message.tool_call_id,
        "content": content,
    }
    if message.name:
        flat["name"] = message.name
    if message.status == "error":
        flat["is_error"] = True
    return flat


def _plain(flat: dict[str, Any]) -> BaseMessage:
    content: Any = flat.get("content") or ""
    named = {"name": flat["name"]} if flat.get("name") else {}
    if flat["type"] == "tool.result":
        status: Any = "error" if flat.get("is_error") else "success"
        return ToolMessage(
            content=content, tool_call_id=flat["tool_call_id"], status=status, **named
        )
    role = flat["role"]
    if role == "assistant":
        calls = [
            {"name": call["name"], "args": _arguments(call["arguments"]), "id": call["id"]}
            for call in flat.get("tool_calls") or ()
        ]
        return AIMessage(content=content, tool_calls=calls, **named)
    return (
        SystemMessage(content=content, **named)
        if role in ("system", "developer")
        else HumanMessage(content=content, **named)
    )


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"arguments": text}
    return found if isinstance(found, dict) else {"arguments": found}


def _json(value: Any) -> Any:
    """JSON values of anything a message may have; what has no form in JSON becomes its text."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
