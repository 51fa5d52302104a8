"""What people read has one word for a thing."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OF_THE_CODE = ("architecture.md",)
"""Pages about the code itself, with the code's words."""


def test_a_conversation_is_parked_wherever_people_read_of_it() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in OF_THE_CODE]
    read = [
        *pages,
        *(ROOT / "docs" / "schemas").glob("*.json"),
        *(ROOT / "console" / "src").iterdir(),
        *(ROOT / "deploy").rglob("*.yml"),
        ROOT / "clients" / "typescript" / "types" / "openapi.d.ts",
    ]
    assert len(read) > 60
    assert [str(page) for page in read if "quarantin" in page.read_text().lower()] == []
