"""Reading events back from the log: tolerant of what is newer, never of what would break a fold."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import codec
from projections.events import types as events
from projections.events.codec import decode_event, full_type, is_known, short_type
from projections.events.types import absolute, delta
from projections.events.untrusted import Undecodable
from projections.fold.apply import apply
from projections.formats.context_document import context_document
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.render import render_openai
from projections.window.window import Window
from tests.support.profiles import examples

KEY = Key("acme", "c1")
CALL = {"id": "a", "name": "f", "arguments": ""}


def value(type_: str, data: Any, **envelope: Any) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": "x",
            "type": type_,
            "source": KEY.source,
            "data": data,
            **envelope,
        }
    )


def test_a_known_event_is_its_own_struct() -> None:
    event = decode_event(
        value(
            "threadfold.message.v1", {"role": "user", "content": "hi"}, time="2026-01-01T00:00:00Z"
        )
    )
    assert isinstance(event, events.MessageEvent)
    assert (event.data.role, event.data.content, event.id, event.source) == (
        "user",
        "hi",
        "x",
        KEY.source,
    )


def test_fields_of_a_newer_release_are_passed_over() -> None:
    event = decode_event(
        value(
            "threadfold.message.v1", {"role": "user", "content": "hi", "mood": "good"}, subject="s"
        )
    )
    assert isinstance(event, events.MessageEvent)


@pytest.mark.parametrize(
    "type_", ["threadfold.message.v2", "threadfold.memory.v1", "acme.note.v1", "message"]
)
def test_other_types_and_newer_versions_are_kept_as_they_are(type_: str) -> None:
    event = decode_event(value(type_, {"anything": [1, 2]}, tokens="whatever"))
    assert isinstance(event, events.OtherEvent)
    assert event.type == type_ and bytes(event.data) == b'{"anything":[1,2]}'  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", "array"),
        (b"\xff", ""),
        (b'{"specversion":"1.0","id":"x","source":"s","data":{}}', "type"),
        (value("threadfold.message.v1", {"role": "nobody", "content": "x"}), "data.role"),
        (value("threadfold.message.v1", {"role": "user"}), "content"),
        (value("threadfold.message.v1", {"role": "user", "content": "x", "tool_calls": [CALL]}), "calls"),
        (value("threadfold.rollback.v1", {}), "to"),
        (value("threadfold.rollback.v1", {"to": "1-2"}, specversion="2.0"), "specversion"),
        (value("threadfold.rollback.v1", None), "object"),
        (b'{"specversion":"1.0","id":7,"type":"acme.note.v1","source":"s"}', "id"),
        (b"[" * 100_000, ""),
        (b'{"a":' * 5_000, ""),
    ],
)  # fmt: skip
def test_what_is_no_event_is_undecodable_with_the_reason(raw: bytes, said: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decode_event(raw)
    assert said in str(caught.value) and str(caught.value)


@pytest.mark.parametrize(
    ("type_", "data", "field"),
    [
        ("conversation.opened", b'{"metadata":{"a":[18446744073709551616]}}', "metadata"),
        ("conversation.opened", b'{"policy":{"model_window":-99999999999999999999}}', "policy"),
        ("conversation.opened", b'{"metadata":' + b'{"a":' * 65 + b"1" + b"}" * 65 + b"}", "metadata"),
        ("turn.started", b'{"turn_id":"t","lease":' + b"[" * 70 + b"]" * 70 + b"}", "lease"),
        ("loop.detected", b'{"tool":"t","arguments_sha256":"","count":18446744073709551616}', "count"),
        ("message", b'{"role":"user","content":[{"type":"file","file":{"a":' + b"[" * 70 + b"]" * 70 + b"}}]}", "content.file"),
    ],
)  # fmt: skip
def test_json_beyond_what_a_window_can_store_is_undecodable_and_names_its_field(
    type_: str, data: bytes, field: str
) -> None:
    with pytest.raises(Undecodable, match=f"^field {field}: "):
        decode_event(value(full_type(type_), msgspec.Raw(data)))


def test_type_names() -> None:
    assert full_type("message") == "threadfold.message.v1"
    assert short_type("threadfold.message.v1") == "message"
    assert short_type("threadfold.message.v2") == "threadfold.message.v2"
    assert (
        is_known("threadfold.message.v1")
        and not is_known("message")
        and not is_known("threadfold.message.v2")
    )
    assert {full_type(name) for name in codec.DATA_TYPES} == {
        tag for tag in map(full_type, codec.DATA_TYPES) if is_known(tag)
    }  # fmt: skip


@given(st.lists(st.integers(0, 10**12), unique=True).map(sorted))
def test_delta_encoding_reads_back(offsets: list[int]) -> None:
    assert absolute(delta(offsets)) == offsets


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def any_data(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Some data of a type: right where a choice falls so, any JSON elsewhere."""
    name = draw(st.sampled_from(sorted(codec.DATA_TYPES)))
    struct = codec.DATA_TYPES[name]
    likely = {
        "role": st.sampled_from(["user", "assistant", "system", "developer"]),
        "content": st.text(max_size=30) | st.lists(st.builds(lambda t: {"type": "text", "text": t}, st.text(max_size=9)), max_size=2),
        "tool_calls": st.lists(st.fixed_dictionaries(dict.fromkeys(("id", "name", "arguments"), st.text(max_size=3))), max_size=2),
        "to": st.sampled_from(["3-0", "3-1", "3-2", "e1", "e2"]),
        "position": st.sampled_from(["3-0", "3-1", "x"]),
        "kind": st.sampled_from(["approval", "input"]),
        "outcome": st.sampled_from(["approved", "expired"]),
        "reason": st.sampled_from(["idle", "explicit", "budget"]),
        "trust": st.just("user"),
        "span": st.builds(
            lambda first, last, positions: {"from": first, "to": last, "count": 2, "positions": positions, "digest": ""},
            st.sampled_from(["3-0", "3-1", "x"]), st.sampled_from(["3-0", "3-1", "3-2", "y"]),
            st.lists(st.integers(-3, 10**20), max_size=3),
        ),
        "previous": st.none(),
        "previous_position": st.none() | st.text(max_size=5),
        "rollback": st.none(),
    }  # fmt: skip
    data = {}
    for field in msgspec.structs.fields(struct):
        if field.required or draw(st.booleans()):
            known = likely.get(field.encode_name, st.text(max_size=4) | st.integers(-2, 9))
            data[field.encode_name] = draw(known if draw(st.integers(0, 9)) else JSON)
    return name, data


@given(st.lists(any_data(), max_size=8))
@hypothesis_settings(max_examples=examples(400), deadline=None)
def test_whatever_decodes_can_be_folded_stored_loaded_and_rendered(
    items: list[tuple[str, dict[str, Any]]],
) -> None:
    rules = Rules({"model_window": 2_000, "reserve_tokens": 200, "summary_max_tokens": 60})
    window = Window(KEY, 3, rules)
    for i, (name, data) in enumerate(items):
        try:
            event = decode_event(value(full_type(name), data, id=f"e{i}"))
        except Undecodable:
            continue
        apply(window, i, event)
    assert window.copy().image() == window.image()
    try:
        render = render_openai(window)
    except DoesNotFit:
        return
    assert msgspec.json.decode(context_document(window, render))["count"] == window.meta.count


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (
            "tool.result",
            {
                "tool_call_id": "a",
                "spill": {"chars": 10**30, "bytes": 1, "sha256": "", "size": 1, "chunks": []},
            },
        ),
        ("message", {"role": "assistant", "content": "x", "usage": {"prompt_tokens": 10**30}}),
    ],
)
def test_numbers_that_no_window_can_store_are_no_event(kind: str, data: dict[str, Any]) -> None:
    """A fold that keeps one fails when it is written, on every attempt: nothing of its partition
    went on.
    """
    record = {
        "specversion": "1.0",
        "id": "1",
        "type": f"threadfold.{kind}.v1",
        "source": "/tenants/t/conversations/c",
        "data": data,
    }
    with pytest.raises(Undecodable):
        decode_event(json.dumps(record).encode())
