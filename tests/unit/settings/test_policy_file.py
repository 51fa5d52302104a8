"""Policy files that do not hold are named with what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.errors import InvalidPolicy
from streams.settings.policy_file import read_layer


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"working_budget": 1, "working_budget": 2}', "has the key 'working_budget'"),
        ("a.json", '{"a": {"b": 1, "b": 2}}', "has the key 'b' twice"),
        ("a.json", '{"working_budget": 1,}', "is not JSON"),
        ("a.json", "", "is empty"),
        ("a.json", "[" * 2_000 + "]" * 2_000, "nested"),
        ("a.json", "[]", "expected an object of keys"),
        ("a.toml", "working_budget = 1\nworking_budget = 2", "is not TOML"),
        ("none.json", None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_policy_is_one_line_that_says_why(
    name: str, text: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidPolicy) as raised:
        read_layer(path)
    assert str(path) in str(raised.value) and said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_policy_is_read_from_json_and_from_toml(tmp_path: Path) -> None:
    for name, text in (("a.json", '{"min_messages": 3}'), ("a.toml", "min_messages = 3")):
        (tmp_path / name).write_text(text)
        assert read_layer(tmp_path / name) == {"min_messages": 3}
