"""Log lines and errors that the docs quote are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "operations.md").read_text()
QUOTED = re.compile(r"`(?:\.\.\. )?((?:[a-z]+ )+[a-z:;, ]+[a-z])`")
"""What stands in backticks and is a sentence, ``... `` standing for its beginning."""


def messages() -> str:
    """The texts of all string literals of the product, one a line, their fields left out."""
    found = []
    for package in ("projections", "streams", "threadfold"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [p.value for p in node.values if isinstance(p, ast.Constant)]
                    found.append("…".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


def test_every_message_that_the_page_of_failures_quotes_is_one_of_the_code() -> None:
    section = TEXT.partition("## What a failure looks like")[2].partition("\n## Timers")[0]
    quoted = [text for text in QUOTED.findall(section) if text.count(" ") > 2]
    assert len(quoted) >= 5
    known = messages()
    # A line may be put together: of an error and of what is done about it.
    parts = [part for text in quoted for part in re.split(r"[;,] ", text)]
    assert [part for part in parts if part not in known] == []
