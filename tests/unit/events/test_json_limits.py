"""What JSON a window can keep, wherever in a value it stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.events.json_limits import MAX_DEPTH, why_not_kept

KEPT = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
NESTED = st.recursive(
    KEPT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int, inner: Any = 0) -> Any:
    value = inner
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@given(value=NESTED)
def test_ordinary_json_is_kept(value: Any) -> None:
    assert why_not_kept(value) is None


@given(before=NESTED, depth=st.integers(0, 5), first=st.booleans())
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (float("inf"), "NaN and infinity"),
        (float("nan"), "NaN and infinity"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({1, 2}, "a set is not JSON"),
        (b"x", "a bytes is not JSON"),
        (nested(MAX_DEPTH + 1), "levels deep"),
    ],
)
def test_what_cannot_be_kept_is_found_wherever_it_stands(
    wrong: Any, why: str, before: Any, depth: int, first: bool
) -> None:
    beside = [wrong, before] if first else {"a": before, "b": wrong}
    assert why in (why_not_kept(nested(depth, beside)) or "kept")


def test_it_may_nest_just_so_deep() -> None:
    assert why_not_kept(nested(MAX_DEPTH)) is None
    assert "levels deep" in (why_not_kept(nested(MAX_DEPTH + 1)) or "")
