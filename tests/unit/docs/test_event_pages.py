"""``docs/events``: every event type has its page, its table has the type's fields, and its example
is what the product makes of it.

The examples are blocks of JSON, folded in their order by the product's own fold: ``append`` is what
a caller sends, ``operator`` what a command writes, ``threadfold`` what threadfold appends by itself,
``log`` a record's fields without a fold; ``answer`` and ``context`` are what comes back. A shown
document may have fewer fields than the real one; ``…`` stands for any text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from projections.events.codec import DATA_TYPES, decode_event
from projections.events.types import AnyEvent, LoopDetected
from projections.events.validation import make_record
from projections.fold.outcomes import Outcome
from projections.fold.replay import apply_with_log
from projections.formats.context_document import context_document
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.settings.settings import Settings
from threadfold.testing import MemoryLog

PAGES = Path(__file__).resolve().parents[3] / "docs" / "events"
KEY = Key("acme", "c1")
NOW = "2026-01-31T12:00:00.000Z"
BLOCK = re.compile(r"^```json (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def blocks(name: str) -> list[tuple[str, Any]]:
    return [(kind, json.loads(body)) for kind, body in BLOCK.findall(page(name))]


def fields(text: str) -> dict[str, bool]:
    """The fields of a page's first table, and whether it calls them required."""
    table = text.partition("\n| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE)
    return {name: second.strip() == "required" for name, second in rows}


def same(shown: Any, real: Any) -> bool:
    """Whether a real document has everything that a page shows of it."""
    if isinstance(shown, str) and isinstance(real, str):
        pattern = ".*".join(map(re.escape, shown.split("…")))
        return re.fullmatch(pattern, real, re.DOTALL) is not None
    if isinstance(shown, dict) and isinstance(real, dict):
        return all(key in real and same(value, real[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(same, shown, real))
    return type(shown) is type(real) and bool(shown == real)


class Conversation:
    """One conversation of an example: its log, its window, and the last answer."""

    def __init__(self) -> None:
        self.window = Window(KEY, 0, Rules({}))
        self.messages = MemoryLog(1)
        self.log: list[tuple[int, AnyEvent]] = []
        self.loop: LoopDetected | None = None
        self.answer: dict[str, Any] = {}

    async def append(self, flats: list[dict[str, Any]], *, operator: bool = False) -> None:
        answered = []
        for flat in flats:
            new_id = f"e{len(self.log)}"
            record = make_record(
                KEY, flat, where="event", now=NOW, new_id=new_id, operator=operator
            )
            (position,) = await self.messages.append([record])
            outcome = self._fold(position, record.value)
            self.loop = outcome.loop or self.loop
            at = str(Position(0, outcome.offset))
            answered.append({"id": record.id, "position": at, "status": outcome.status.value})
            self.answer = {"events": answered, "position": str(position)}

    async def by_threadfold(self, flat: dict[str, Any]) -> None:
        """What threadfold appends by itself; of a summary and a loop the page shows the real
        one."""
        if flat["type"] == "summary":
            request = request_for(self.window, 1)
            assert request is not None, "no summary is due"
            position = await Compactor(Settings(), self.messages).answer(request)
            raw = (await self.messages.read([position]))[position]
            outcome = self._fold(position, raw.value or b"")
            assert outcome.accepted
            made = msgspec.to_builtins(self.log[-1][1].data)
            shown = {name: value for name, value in flat.items() if name != "type"}
            assert same(shown, made), made
            return
        if flat["type"] == "loop.detected":
            assert flat == {"type": "loop.detected", **msgspec.to_builtins(self.loop)}
        await self.append([flat], operator=True)

    def _fold(self, position: Position, value: bytes) -> Outcome:
        event = decode_event(value)
        outcome = apply_with_log(self.window, position.offset, event, self.log)
        self.log.append((position.offset, event))
        return outcome

    def context(self) -> Any:
        return json.loads(context_document(self.window, render_openai(self.window)))


def test_every_event_type_has_its_page_and_the_index_links_it() -> None:
    index = page("README")
    assert {path.stem for path in PAGES.glob("*.md")} == {*DATA_TYPES, "README", "approvals"}
    assert [name for name in DATA_TYPES if f"[`{name}`]({name}.md)" not in index] == []


@pytest.mark.parametrize("name", DATA_TYPES)
def test_a_page_has_the_fields_of_its_type(name: str) -> None:
    real = msgspec.structs.fields(DATA_TYPES[name])
    assert fields(page(name)) == {field.encode_name: field.required for field in real}


@pytest.mark.parametrize("name", [*DATA_TYPES, "approvals"])
async def test_an_example_is_what_the_product_makes_of_it(name: str) -> None:
    found = blocks(name)
    kinds = {kind for kind, _ in found}
    assert kinds & {"append", "operator", "threadfold", "log"} and kinds & {"context", "log"}
    if name != "approvals":
        shown = [
            flat
            for kind, value in found
            if kind not in ("answer", "context")
            for flat in (value if isinstance(value, list) else [value])
        ]
        assert name in {flat["type"] for flat in shown}
    conversation = Conversation()
    for kind, value in found:
        if kind == "append" or kind == "operator":
            flats = value if isinstance(value, list) else [value]
            await conversation.append(flats, operator=kind == "operator")
        elif kind == "threadfold":
            await conversation.by_threadfold(value)
        elif kind == "log":
            data = {key: one for key, one in value.items() if key != "type"}
            msgspec.convert(data, DATA_TYPES[value["type"]])
        elif kind == "answer":
            assert same(value, conversation.answer), conversation.answer
        elif kind == "context":
            assert same(value, conversation.context()), conversation.context()
        else:
            pytest.fail(f"a block of JSON of an unknown kind: {kind}")


def test_a_difference_from_what_a_page_shows_is_seen() -> None:
    assert same({"a": "x…"}, {"a": "xyz", "b": 1}) and same([1, None], [1, None])
    for shown, real in (({"a": "y…"}, {"a": "xyz"}), ([1], [1, 2]), ({"a": 1}, {}), (1, True)):
        assert not same(shown, real)
