"""What is wrong with a value is said in plain words, with the values and fields that are allowed."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import msgspec
import pytest

from projections.events.type_errors import explain


class Part(msgspec.Struct, tag_field="kind"):
    pass


class Note(Part, tag="note"):
    text: str


class Mark(Part, tag="mark"):
    colour: Literal["red", "green"] | None = None


class Document(msgspec.Struct, forbid_unknown_fields=True):
    policy: Literal["queue", "reject"] = "queue"
    verbs: list[Literal["read", "append"]] = []
    parts: tuple[Note | Mark, ...] = ()
    tags: dict[str, int] = {}
    share: float = 0.5
    title: str | list[str] | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "the body: expected an object, got a whole number"),
        ({"policy": "quue"}, "field policy: 'quue' is not one of queue, reject"),
        ({"policy": None}, "field policy: expected one of queue, reject, got null"),
        ({"policy": "q" * 900}, f"field policy: '{'q' * 59}… is not one of queue, reject"),
        ({"verbs": ["read", "fly"]}, "field verbs[1]: 'fly' is not one of append, read"),
        ({"parts": [{"kind": "nite"}]}, "field parts[0].kind: 'nite' is not one of note, mark"),
        ({"parts": [{"kind": "note"}]}, "field parts[0].text: missing"),
        ({"parts": [{}]}, "field parts[0].kind: missing"),
        (
            {"parts": [{"kind": "mark", "colour": 1}]},
            "field parts[0].colour: expected one of green, red or null, got a whole number",
        ),
        ({"polcy": 1}, "field polcy: unknown to the body (it has count, parts, policy, share,"),
        ({" - at `$.verbs[0]": 1}, "field ' - at `$.verbs[0]': unknown to the body (it has count,"),
        ({"x` - at `$.y`": 1}, "field 'x` - at `$.y`': unknown to the body (it has count, "),
        ({"policy": " - at `$.verbs[0]`"}, "field policy: ' - at `$.verbs[0]`' is not one of "),
        ({"tags": {"a": "b"}}, "field tags[...]: expected a whole number, got text"),
        ({"share": True}, "field share: expected a number, got true or false"),
        ({"title": 1}, "field title: expected text, a list or null, got a whole number"),
        ({"count": 1.5}, "field count: expected a whole number, got a decimal number"),
        ({"count": 0}, "field count: expected a whole number >= 1"),
    ],
)
def test_an_error_names_the_field_and_what_is_allowed(value: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Document)
    assert explain(caught.value, Document, "the body").startswith(said)


def test_a_parameters_text_is_repeated() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert("x", int, strict=False)
    said = explain(caught.value, int, "query parameter limit", given="x")
    assert said == "query parameter limit: expected a whole number, got 'x'"


@pytest.mark.parametrize("text", [" - at `$[", "[", " - at `$", "`", "a.", "[0]"])
def test_a_long_key_or_value_is_named_in_time(text: str) -> None:
    long = " - at `$" + text * 100_000
    for value in ({long: 1}, {"policy": long}, {"tags": {long: "b"}}):
        with pytest.raises(msgspec.ValidationError) as caught:
            msgspec.convert(value, Document)
        begun = time.thread_time()
        explain(caught.value, Document, "the body")
        assert time.thread_time() - begun < 0.1
