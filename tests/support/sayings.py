"""What is said in generated conversations: messages, calls and results of many shapes, as flat
events.
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

from projections.events.tokenizer import count
from tests.support.conversations import NOUNS

Flat = dict[str, Any]
WORDS = (
    *NOUNS,
    *("Riga", "Bergen", "naïve", "包裹", "😀", "0042", "and", "the", "of", "to"),
)
PIXEL = "data:image/png;base64," + "iVBORw0KGgo" * 300
MEDIA: dict[int, Flat] = {
    1: {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
    },
    2: {"type": "file", "file": {"file_data": "data:text/plain;base64,aGVsbG8="}},
    5: {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    20: {"type": "image_url", "image_url": {"url": PIXEL}},
}
"""What stands beside the text of a result, by its size."""


@lru_cache(maxsize=4096)
def tokens(text: str) -> int:
    """Tokens of a text in the default encoding, remembered: the same texts are counted at every
    cut.
    """
    return count(text)


def text(rng: random.Random, words: int) -> str:
    """So many words, about."""
    return " ".join(rng.choices(WORDS, k=max(1, words)))


def question(rng: random.Random) -> Flat:
    """A user's message: mostly text, also with images, files, authors of a group chat, nothing but
    blanks.
    """
    flat: Flat = {
        "type": "message",
        "role": "user",
        "content": text(rng, rng.choice([3, 15, 60, 200])),
    }
    roll = rng.random()
    if roll < 0.08:
        images = [
            {"type": "image_url", "image_url": {"url": PIXEL, "detail": detail}}
            for detail in rng.sample(["low", "high"], 1)
        ]
        flat["content"] = [{"type": "text", "text": text(rng, 6)}, *images]
    elif roll < 0.12:
        flat["content"] = [
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "JVBERi0" * 200}}
        ]
    elif roll < 0.14:
        flat["content"] = rng.choice(["", "  ", [{"type": "text", "text": ""}]])
    elif roll < 0.3:
        flat["name"] = rng.choice(["ann", "bo", "cy_3"])
    return flat


def answer(rng: random.Random, model: tuple[str, str]) -> Flat:
    """An assistant's message; with the provider's reasoning now and then, sometimes nothing but
    that.
    """
    said = text(rng, rng.choice([5, 40, 150]))
    content: Any = said
    if rng.random() < 0.2:
        content = [
            _reasoning(rng, model),
            *([{"type": "text", "text": said}] if rng.random() < 0.8 else []),
        ]
    flat: Flat = {"type": "message", "role": "assistant", "content": content, "model": model[0]}
    if rng.random() < 0.05:
        flat["status"] = "interrupted"
    return flat


def calls(rng: random.Random, ids: list[str], model: tuple[str, str]) -> Flat:
    """An assistant's message with calls of these ids."""
    content: Any = rng.choice([None, None, text(rng, 10), [_reasoning(rng, model)], ""])
    made = []
    for id_ in ids:
        arguments = rng.choice(
            ["{}", '{"n": 1}', json.dumps({"q": text(rng, 12)}), "not json", "[1]", ""]
        )
        if rng.random() < 0.02:
            arguments = json.dumps({"body": text(rng, 900)})
        made.append(
            {"id": id_, "name": rng.choice(["look", "find_parcel"]), "arguments": arguments}
        )
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "tool_calls": made,
        "model": model[0],
    }


def result(rng: random.Random, call_id: str, huge: float) -> Flat:
    """A tool's result: plain, a JSON list, a table, nested JSON, an error, parts, pinned, and now
    and then a huge one.
    """
    flat: Flat = {
        "type": "tool.result",
        "tool_call_id": call_id,
        "name": "look",
        "content": _content(rng, huge),
    }
    if rng.random() < 0.1:
        flat["is_error"] = True
    if rng.random() < 0.05:
        flat["pinned"] = True
    return flat


def _content(rng: random.Random, huge: float) -> Any:
    size = rng.choice([1, 2, 5, 20])
    if rng.random() < huge:
        size = rng.choice([400, 2_500])
    shape = rng.randrange(7)
    if shape == 0:
        return json.dumps(
            [{"id": i, "place": rng.choice(WORDS), "note": text(rng, 8)} for i in range(size)],
            ensure_ascii=False,
        )
    if shape == 1:
        return "| id | place |\n|---|---|\n" + "\n".join(
            f"| {i} | {text(rng, 6)} |" for i in range(size)
        )
    if shape == 2:
        return json.dumps(
            {"found": size, "rows": [{"a": [i, {"b": text(rng, 5)}]} for i in range(size)]}
        )
    if shape == 3 and size < 100:
        return [
            {"type": "text", "text": text(rng, 10 * size)},
            MEDIA[size],
        ]
    if shape == 4 and size < 100:
        return rng.choice(["", None, "null", "[]", " "])
    if shape == 5:
        return "".join(f"line {i}: {text(rng, 10)}\n" for i in range(size))
    return text(rng, 13 * size)


def _reasoning(rng: random.Random, model: tuple[str, str]) -> Flat:
    return {
        "type": "reasoning",
        "text": text(rng, 8),
        "signature": f"sig-{rng.randrange(99)}",
        "provider": model[1],
    }
