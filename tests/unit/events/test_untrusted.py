"""Errors about bytes that others wrote repeat nothing of what these say, however long they are."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec
import pytest

from projections.events.untrusted import Undecodable, json_decoder


class Note(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["a", "b"] = "a"
    parts: list[Literal["c"]] = []


def said_of(value: Any) -> str:
    with pytest.raises(Undecodable) as caught:
        json_decoder(Note)(msgspec.json.encode(value))
    return str(caught.value)


@pytest.mark.parametrize(
    "secret", ["secret", "it's secret", "secret' - at `$.kind`", " value 'secret'", "secret `", ""]
)
def test_a_value_is_named_by_its_place_alone(secret: str) -> None:
    assert said_of({"kind": secret}) == "Invalid enum value - at `$.kind`"
    assert said_of({"parts": [secret]}) == "Invalid enum value - at `$.parts[0]`"
    assert said_of({"kind": 1}) == "Expected `str`, got `int` - at `$.kind`"


@pytest.mark.parametrize("text", [" value '", " value '\"", " - at `$", "'", "[", " value"])
def test_a_long_value_or_name_of_a_field_is_refused_in_time(text: str) -> None:
    long = text * 100_000
    for value in ({"kind": long}, {long: 1}, {"parts": [long]}):
        begun = time.thread_time()
        said_of(value)
        assert time.thread_time() - begun < 0.1
