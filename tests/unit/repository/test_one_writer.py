"""A window is written by its own class alone: everybody else calls its methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.repository.test_rules import ROOT, sources

RULES = ("fold", "reducers", "render", "formats", "storage")
"""Rooms of projections whose functions are given windows and entries."""
MUTATING = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "update", "setdefault"}


def root_of(node: ast.expr) -> tuple[str, set[str]]:
    """The name that a chain of attributes and subscripts begins with, and the attributes in it."""
    attributes = set()
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), attributes


def written(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """What a module assigns to, deletes, or changes by a method of lists and dicts."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATING
        ):
            targets = [node.func.value]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for part in parts:
                yield node.lineno, part


def writes_to_windows(text: str, *, entries: bool) -> list[int]:
    """The lines that write to a part of a window or its meta or, with ``entries``, to a field of
    an entry.
    """
    found = []
    for line, target in written(ast.parse(text)):
        name, attributes = root_of(target)
        chain = {name.lstrip("_"), *(attribute.lstrip("_") for attribute in attributes)}
        of_window = bool(chain & {"window", "meta"})
        last = target.attr if isinstance(target, ast.Attribute) else ""
        if (of_window and attributes and last.lstrip("_") != "window") or (
            entries and name != "self" and last in FIELDS
        ):
            found.append(line)
    return found


def fields_of(path: str, *names: str) -> set[str]:
    """The fields that classes of a module declare."""
    tree = ast.parse((ROOT / path).read_text())
    return {
        part.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in names
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


FIELDS = fields_of("projections/window/entry.py", "Details", "Entry") | fields_of(
    "projections/window/meta.py", "Counters", "Progress", "Meta", "Quarantine"
)


def test_rules_write_no_field_of_a_window() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files()
        for line in writes_to_windows(path.read_text(), entries=in_rules(path))
    ]
    assert not wrong, wrong


def in_rules(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] in {("projections", room) for room in RULES}


def files() -> list[Path]:
    own = ROOT / "projections" / "window"
    found = [
        p for package in ("projections", "streams", "threadfold") for p in sources(package, ".py")
    ]
    return [path for path in found if own not in path.parents]


@pytest.mark.parametrize(
    "line",
    [
        "window.meta.due = None",
        "meta.count += 1",
        "window.tail[0] = entry",
        "window.tail.append(entry)",
        "del slot.window.tail[:3]",
        "self._window.meta.position = 5",
        "window.cut = None",
        "entry.tokens, entry.body = 5, b''",
    ],
)
def test_a_write_is_found(line: str) -> None:
    assert writes_to_windows(line, entries=True)


@pytest.mark.parametrize(
    "line", ["window.mark_due(None)", "self.window = window", "bodies.append(b'')"]
)
def test_a_call_is_none(line: str) -> None:
    assert not writes_to_windows(line, entries=True)
