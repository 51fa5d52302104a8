"""The operator's drill: each fault shows where docs/drill.md says, and is over once it is healed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.drill.__main__ import exercise
from tests.drill.deployment import deployed
from tests.drill.faults import FAULTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "drill.md"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


async def test_every_fault_shows_and_is_over_once_it_is_healed(tmp_path: Path) -> None:
    async with deployed(tmp_path / "drill") as stack:
        for fault in FAULTS:
            print(await exercise(stack, fault))


def test_the_page_has_every_fault() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE) == [
        fault.name for fault in FAULTS
    ]
