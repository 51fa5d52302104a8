"""Tests and benchmarks use public names only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.repository.test_rules import ROOT, sources

PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Documented names of named tuples and of os, which begin with an underscore all the same."""
FOR_NAMES = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in PUBLIC


def is_own(node: ast.Attribute) -> bool:
    """Whether an attribute is one of the object or class itself, or of its parent."""
    value = node.value
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def private_accesses(tree: ast.AST) -> Iterator[int]:
    """The lines on which a private name of something else is read, written, imported or patched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names = [] if is_own(node) else [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            names = [str(text).rpartition(".")[2] for text in texts if name in FOR_NAMES]
        else:
            continue
        if any(map(is_private, names)):
            yield node.lineno


def test_private_names_of_others_are_not_used() -> None:
    found: list[str] = []
    for path in [path for folder in ("tests", "benchmarks") for path in sources(folder, ".py")]:
        lines = private_accesses(ast.parse(path.read_text()))
        found += [f"{Path(path).relative_to(ROOT)}:{line}" for line in lines]
    assert sorted(found) == []


def test_an_access_is_seen_however_it_is_made() -> None:
    text = (
        "from a import _x\nimport a._b\na._c\nself._own\nsuper()._own()\nrow._replace(a=1)\n"
        "monkeypatch.setattr(a, '_d', 1)\nmonkeypatch.setattr('a.b._e', 1)\n"
    )
    assert sorted(private_accesses(ast.parse(text))) == [1, 2, 3, 7, 8]
