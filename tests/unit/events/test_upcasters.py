"""Event versions: an outdated one is lifted step by step, an unknown one is kept and skipped, what
a step gets wrong is a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.errors import InvalidEvent
from projections.events import codec
from projections.events import types as events
from projections.events.codec import decode_event, present_form
from projections.events.types import KnownEvent, MessageEvent, OtherEvent
from projections.events.untrusted import Undecodable
from projections.events.upcasters import Upcaster, Upcasters, UpcastFailed, version_of
from projections.events.validation import make_record
from projections.events.versions import EventTypes
from projections.fold.replay import replay
from projections.names import Key, Position
from projections.render.render import render_openai
from streams.encryption.payload_cipher import Unsealed, open_value, seal_event
from streams.log.log import Raw
from tests.support.histories import RULES
from tests.unit.custom.test_projections import Last
from threadfold.service.pages import flat_event
from threadfold.streaming.decoding import decode_record
from threadfold.testing import MemoryProjection

ACME = Key("acme", "c")


def from_v0(data: dict[str, Any]) -> dict[str, Any]:
    """An invented first version of messages had `from` and `text`."""
    data["role"] = data.pop("from")
    data["content"] = data.pop("text")
    return data


@pytest.fixture
def v0(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A release that reads messages of version 0, too."""
    monkeypatch.setattr(codec, "TYPES", EventTypes(KnownEvent, [Upcaster("message", 0, from_v0)]))
    yield


def value(full: str, data: object, id_: str = "e1", **more: Any) -> bytes:
    envelope = {
        "specversion": "1.0",
        "id": id_,
        "type": full,
        "source": ACME.source,
        "time": "2026-01-31T12:00:00Z",
        **more,
        "data": data,
    }
    return json.dumps(envelope).encode()


OLD = {"from": "user", "text": "written long ago"}
NEW = {"role": "user", "content": "written long ago"}


@pytest.mark.usefixtures("v0")
def test_an_outdated_event_is_the_event_it_would_be_today() -> None:
    old, new = (
        decode_event(
            value(
                f"threadfold.message.v{n}",
                data,
                tokens={"count": 3, "encoding": "o200k_base", "exact": True},
                expect="9-1",
            )
        )
        for n, data in ((0, OLD), (1, NEW))
    )
    assert type(old) is MessageEvent
    assert old == new


@pytest.mark.usefixtures("v0")
def test_an_outdated_event_is_folded_shown_streamed_and_projected_as_todays() -> None:
    old, new = value("threadfold.message.v0", OLD), value("threadfold.message.v1", NEW)
    windows = [replay(ACME, 0, RULES, [(5, decode_event(one))]) for one in (old, new)]
    assert windows[0].image() == windows[1].image()
    assert render_openai(windows[0]).messages == render_openai(windows[1]).messages
    rows = [Raw(Position(0, 5), b"acme/c", one, 1) for one in (old, new)]
    pages = [flat_event(row, ACME, Unsealed()) for row in rows]
    assert (
        pages[0]
        == pages[1]
        == {
            "id": "e1",
            "type": "message",
            "time": "2026-01-31T12:00:00Z",
            "position": "0-5",
            **NEW,
        }
    )
    streamed = [decode_record(row, 0, ACME, Unsealed()) for row in rows]
    assert all(one is not None for one in streamed)
    assert json.loads(streamed[0].sse.data) == json.loads(streamed[1].sse.data)  # type: ignore[union-attr]


@pytest.mark.usefixtures("v0")
async def test_a_projection_of_ones_own_gets_it_as_todays() -> None:
    view = MemoryProjection(Last(), partitions=1)
    view.log.put(0, b"acme/c", value("threadfold.message.v0", OLD))
    assert await view.get("acme", "c") == {"text": "written long ago", "count": 1}


@pytest.mark.usefixtures("v0")
def test_a_sealed_outdated_event_is_lifted_once_it_is_open() -> None:
    kid, key = b"k" * 12, AESGCM(b"s" * 32)

    class PayloadCipher(Unsealed):
        def data_key(self, conversation: bytes, kid: bytes) -> AESGCM:
            return key

    sealed = seal_event(value("threadfold.message.v0", OLD), kid, key)
    opened = open_value(PayloadCipher(), b"acme/c", sealed)
    assert opened is not None
    assert decode_event(opened) == decode_event(value("threadfold.message.v1", NEW))
    shut = flat_event(Raw(Position(0, 5), b"acme/c", sealed, 1), ACME, Unsealed())
    assert shut is not None
    assert shut["opaque"] is True, "what is sealed was taken for data of its version"


@pytest.mark.parametrize(
    "full",
    [
        "threadfold.message.v0",
        "threadfold.message.v2",
        "threadfold.message.v999",
        "threadfold.new.thing.v1",
    ],
)
def test_a_version_or_type_nobody_knows_is_kept_and_skipped(full: str) -> None:
    event = decode_event(value(full, OLD))
    assert isinstance(event, OtherEvent)
    window = replay(ACME, 0, RULES, [(5, event)])
    assert (window.meta.unknown, json.loads(render_openai(window).messages)) == (1, [])
    page = flat_event(Raw(Position(0, 5), b"acme/c", value(full, OLD), 1), ACME, Unsealed())
    assert page is not None
    assert (page["type"], page["text"]) == (full, "written long ago")


@pytest.mark.usefixtures("v0")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"from": "user"},
            (
                r"the upcaster from threadfold\.message\.v0 to threadfold\.message\.v1 failed"
                r" \(KeyError\)"
            ),
        ),
        (
            {"from": "secret role", "text": "x"},
            r"what the upcaster from threadfold\.message\.v0 gave is no event: Invalid enum value",
        ),
        ({"from": "user", "text": None}, "gave is no event: content: may be null only"),
        ("text", r"the data of threadfold\.message\.v0 is not an object"),
        (None, "is not an object"),
    ],
)
def test_what_a_step_gets_wrong_is_a_dead_letter_that_quotes_nothing(
    data: object, said: str
) -> None:
    with pytest.raises(Undecodable, match=said) as caught:
        decode_event(value("threadfold.message.v0", data))
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("v0")
def test_what_todays_checks_refuse_is_refused_of_an_outdated_event_too() -> None:
    file = {"from": "user", "text": [{"type": "file", "file": {"n": "\ud800"}}]}
    text = value("threadfold.message.v0", file)
    with pytest.raises(Undecodable):
        decode_event(text)
    with pytest.raises(Undecodable, match="nested more than"):
        decode_event(value("threadfold.message.v0", OLD, deep=json.loads("[" * 200 + "]" * 200)))


@pytest.mark.usefixtures("v0")
def test_nobody_appends_an_outdated_version_by_its_name() -> None:
    with pytest.raises(InvalidEvent, match="is not one of"):
        make_record(
            ACME,
            {"type": "threadfold.message.v0", **OLD},
            where="it",
            now="2026-01-31T12:00:00Z",
            new_id="x",
        )


def test_steps_are_chained_and_what_they_are_given_stays_as_it_was() -> None:
    def first(data: dict[str, Any]) -> dict[str, Any]:
        data["b"] = data.pop("a")
        return data

    def second(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "c": data["b"] * 2}

    steps = [Upcaster("note", 2, second), Upcaster("note", 1, first)]
    upcasters = Upcasters(steps, ["x.note.v3", "x.other.v1"], "x.")
    given = {"a": 1, "later": True}
    assert upcasters.lift("x.note.v1", given) == ("x.note.v3", {"b": 1, "c": 2, "later": True})
    assert given == {"a": 1, "later": True}
    assert upcasters.lift("x.note.v2", {"b": 4}) == ("x.note.v3", {"b": 4, "c": 8})
    assert upcasters.lift("x.note.v3", {"c": 1}) == ("x.note.v3", {"c": 1})
    assert ["x.note.v1" in upcasters, "x.note.v3" in upcasters, "x.note.v4" in upcasters] == [
        True,
        False,
        False,
    ]
    with pytest.raises(UpcastFailed, match="gave no object"):
        Upcasters([Upcaster("note", 1, lambda data: [])], ["x.note.v2"], "x.").lift("x.note.v1", {})  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([("note", 2), ("note", 2)], "two upcasters from x.note.v2"),
        ([("note", 1)], "neither current nor outdated"),
        ([("note", 3)], "is current, and there is an upcaster from it"),
        ([("unknown", 1)], "leads to x.unknown.v2"),
    ],
)
def test_a_chain_that_leads_nowhere_is_found_when_it_is_made(
    steps: list[tuple[str, int]], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Upcasters([Upcaster(name, version, dict) for name, version in steps], ["x.note.v3"], "x.")


def test_every_type_has_one_present_version_and_a_name() -> None:
    for name in codec.DATA_TYPES:
        full = codec.full_type(name)
        assert codec.short_type(full) == name
        assert version_of(full)[0] == events.PREFIX + name
    envelope = msgspec.json.decode(value("threadfold.message.v1", NEW))
    assert present_form(envelope) is envelope
    with pytest.raises(ValueError, match="no type with a version"):
        version_of("message")
