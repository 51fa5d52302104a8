"""Whether a request is such that Anthropic's Messages API takes it: written from the API's
reference, knowing nothing of threadfold.
"""

from __future__ import annotations

import json
import re
from typing import Any

ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
BLOCKS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "result": {"text", "image", "document"},
}


def problems(system: object, messages: bytes | list[Any]) -> list[str]:
    """What is wrong with a request's ``system`` (None: it has none) and messages, one sentence
    each; empty when nothing is.

    A message may end the list whoever says it: an assistant's last message is a prefill.
    """
    parsed = json.loads(messages) if isinstance(messages, bytes) else messages
    wrong = (
        []
        if system is None or (isinstance(system, str) and system.strip())
        else ["system is not a text that says something"]
    )
    if not isinstance(parsed, list) or not parsed:
        return [*wrong, "messages are not a filled list"]
    used: set[str] = set()
    waiting: list[str] = []
    role_before = "assistant"
    for i, message in enumerate(parsed):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            wrong.append(f"{i}: not a message of a known role")
            continue
        wrong += [
            f"{i}: field {name} is not one of a message"
            for name in sorted(message.keys() - {"role", "content"})
        ]
        if role == role_before:
            wrong.append(f"{i}: not in turns: {role} where the other has to speak")
        role_before = role
        blocks = _blocks(message.get("content"))
        if blocks is None:
            wrong.append(f"{i}: content is neither text nor a filled list of blocks")
            blocks = []
        wrong += [f"{i}: {text}" for block in blocks for text in _block(block, role)]
        kinds = [block.get("type") for block in blocks]
        if role == "user":
            wrong += [f"{i}: {text}" for text in _answers(blocks, kinds, waiting)]
            waiting = []
        else:
            wrong += (
                [f"{i}: calls {waiting} have no result directly after their message"]
                if waiting
                else []
            )
            thoughts = [
                at for at, kind in enumerate(kinds) if kind in ("thinking", "redacted_thinking")
            ]
            if thoughts != list(range(len(thoughts))):
                wrong.append(f"{i}: thinking that does not stand first")
            if thoughts and thoughts[-1] == len(kinds) - 1:
                wrong.append(f"{i}: thinking in the last block of the message")
            waiting = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
            wrong += [
                f"{i}: the tool_use id {id_!r} was used before"
                for n, id_ in enumerate(waiting)
                if id_ in used or id_ in waiting[:n]
            ]
            used.update(waiting)
    return [*wrong, f"end: calls {waiting} have no result"] if waiting else wrong


def _blocks(content: object) -> list[dict[str, Any]] | None:
    """Content as blocks, None when it cannot be content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list) and content and all(isinstance(block, dict) for block in content):
        return content
    return None


def _answers(blocks: list[dict[str, Any]], kinds: list[Any], waiting: list[str]) -> list[str]:
    """What is wrong with how a user's message answers the calls right before it."""
    results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    wrong = [
        f"a result of {id_!r}, which nobody waits for here" for id_ in results if id_ not in waiting
    ]
    wrong += [
        f"two results of {id_!r}"
        for id_ in sorted({str(id_) for id_ in results if results.count(id_) > 1})
    ]
    wrong += [
        f"call {id_!r} has no result directly after its message"
        for id_ in waiting
        if id_ not in results
    ]
    if "tool_result" in kinds[kinds.count("tool_result") :]:
        wrong.append("results that do not stand first")
    return wrong


def _block(block: dict[str, Any], role: str) -> list[str]:
    """What is wrong with one block by itself; ``role`` is ``result`` inside a tool's result."""
    kind = block.get("type")
    if kind not in BLOCKS[role]:
        return [f"a block of type {kind!r} in a {role} message"]
    if kind == "text":
        return (
            []
            if isinstance(block.get("text"), str) and block["text"].strip()
            else ["a text block without text"]
        )
    if kind == "thinking" and not (
        isinstance(block.get("thinking"), str)
        and isinstance(block.get("signature"), str)
        and block["signature"]
    ):
        return ["thinking without its signature"]
    if kind == "tool_use":
        wrong = (
            []
            if isinstance(block.get("id"), str) and ID.fullmatch(block["id"])
            else [f"a tool_use id that is none: {block.get('id')!r}"]
        )
        wrong += (
            []
            if isinstance(block.get("name"), str) and NAME.fullmatch(block["name"])
            else ["a tool_use without a valid name"]
        )
        return (
            wrong
            if isinstance(block.get("input"), dict)
            else [*wrong, "a tool_use whose input is no object"]
        )
    if kind == "tool_result":
        content = block.get("content")
        if block.get("is_error") and not content:
            return ["an error without content"]
        if block.get("is_error") and any(b.get("type") != "text" for b in _blocks(content) or ()):
            return ["an error whose content is not text alone"]
        if content is None or content == [] or isinstance(content, str):
            return []
        inner = _blocks(content)
        return (
            ["a result that is neither text nor blocks"]
            if inner is None
            else [text for item in inner for text in _block(item, "result")]
        )
    if kind in ("image", "document"):
        source = block.get("source")
        known = {"base64": "data", "url": "url", "text": "data", "file": "file_id"}
        if not isinstance(source, dict) or not source.get(known.get(str(source.get("type")), "")):
            return [f"a block of type {kind!r} without a source"]
    return []
