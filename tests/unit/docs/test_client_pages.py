"""The pages of the clients name every method that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from threadfold_client import AsyncClient

ROOT = Path(__file__).resolve().parents[3]
OF_EVERY_CLIENT = {"over", "close"}
"""How a client is made and ended: of the text, not of the table."""


def methods() -> list[str]:
    return [name for name in dir(AsyncClient) if name[0] != "_" and name not in OF_EVERY_CLIENT]


def table(page: str) -> set[str]:
    """The methods that stand in the first column of a page's tables."""
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


@pytest.mark.parametrize("page", ["client.md", "typescript.md"])
def test_the_page_of_a_client_names_every_method(page: str) -> None:
    assert len(methods()) >= 30
    wanted = methods()
    if page == "typescript.md":
        wanted = [re.sub("_(.)", lambda found: found[1].upper(), name) for name in wanted]
    assert [name for name in wanted if name not in table(page)] == []
