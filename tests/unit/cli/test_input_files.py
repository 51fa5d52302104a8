"""The files that commands read: the line, the key or the file that is wrong is named before anything
is done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import error_line
from threadfold.cli.main import main
from threadfold.cli.play import Source, copied


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"type":"message",', "line 3: it is not JSON"),
        (b'{"role": "user"', "line 3: it is not JSON: expecting ',' delimiter (column 16)"),
        (b'{"role" "user"}\r', "line 3: it is not JSON: expecting ':' delimiter (column 9)"),
        (b'{"role": "user", "role": "user"}', "line 3: it has the key 'role' twice"),
        (b'{"role": "user", "content": "\xff"}', "line 3: it is not UTF-8 (byte 30)"),
        (b'"hello"', "line 3: expected a JSON object"),
        (b'{"role": "robot"}', "line 3: field role: 'robot' is not one of"),
        (
            b'{"role": "assistant", "content": "x", "tool_cals": []}',
            "line 3: field tool_cals: unknown to a message",
        ),
        (b'{"role": "assistant", "tool_calls": 5}', "line 3: field tool_calls: expected a list"),
    ],
)
def test_append_names_the_line_that_is_wrong(
    line: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"role": "user", "content": "hi"}\n\n' + line + b"\n")
    assert main(["append", "t", "c", str(file)]) == 2
    assert message in error_line(capsys)


@pytest.mark.usefixtures("away")
def test_append_of_nothing_says_so_and_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("\n  \n")
    assert main(["append", "t", "c", str(tmp_path / "empty")]) == 0
    assert error_line(capsys) == "nothing to append: the input is empty"


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "line 1: it is not JSON"),
        ('{"messages": []}', "line 1: field conversation: missing"),
        ('{"conversation": "a b", "messages": []}', "line 1: conversation 'a b' is not a name"),
        ('{"conversation": "c", "messages": {}}', "line 1: field messages: expected a list"),
        (
            '{"conversation": "c", "messages": [{"role": "user", "content": "x", "zz": 1}]}',
            "line 1: message 1: field zz: unknown to a message",
        ),
        (
            (
                '{"conversation": "c", "messages": [{"role": "user", "content": "x"}, {"role":'
                ' "user", "content": 7}]}'
            ),
            "message 2: field content",
        ),
        (
            '{"conversation": "c", "messages": []}\n{"conversation": "c", "messages": []}',
            "line 2: conversation c occurs twice",
        ),
        (
            '{"conversation": "c", "messages": []}\n{"conversation": "c.2", "messages": []}',
            "conversation c: its copy c.2 is a conversation of the files",
        ),
    ],
)
def test_play_checks_its_files_before_anything(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text(text)
    assert main(["play", str(tmp_path / "file"), "--tenant", "t", "--copies", "2"]) == 2
    assert message in error_line(capsys)


def test_a_missing_file_is_one_line(
    away: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(tmp_path / "none"), "--tenant", "t"]) == 2
    assert (
        error_line(capsys)
        == f"threadfold: {tmp_path / 'none'} cannot be read: no such file or directory"
    )
    assert main(["rebuild", "--policy", str(tmp_path / "none")]) == 2
    assert "policy file" in error_line(capsys)


def test_played_ids_follow_from_tenant_conversation_copy_and_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        '{"conversation": "c", "messages": [{"role": "user", "content": "x", "id": "own"}, {"role":'
        ' "user", "content": "x"}]}'
    )

    def ids(tenant: str, copy: int) -> list[str]:
        (conversation,) = Source((tmp_path / "f",), tenant, 1, 1 << 20).read()
        return [record.id for record in copied(conversation, copy).records]

    assert ids("t", 1) == ids("t", 1)
    made = {*ids("t", 1), *ids("t", 2), *ids("u", 1), *ids("u", 2)}
    assert len(made) == 8
    assert "own" not in made


@pytest.mark.usefixtures("away")
def test_a_policy_file_that_does_not_hold_is_named_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('working_budget = "many"\n')
    assert main(["rebuild", "--policy", str(path)]) == 2
    assert error_line(capsys) == (
        f"threadfold: policy file {path}: policy key working_budget: expected a whole number, got"
        " text"
    )


def test_a_policy_that_is_nested_without_end_is_one_line(
    tmp_path: Path, away: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    assert main(["rebuild", "--policy", str(path)]) == 2
    line = error_line(capsys)
    assert line.startswith(f"threadfold: policy file {path} is nested more than ")
