"""What the docs point to is there: pages, headings, files and folders of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]*)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as its readers' sites make them."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in found}


def dead_links(page: Path, text: str) -> list[str]:
    dead = []
    for link in LINK.findall(FENCE.sub("", text)):
        name, _, anchor = link.partition("#")
        target = page if not name else (page.parent / name)
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in headings(target)):
            dead.append(link)
    return dead


def missing_paths(text: str) -> list[str]:
    """The files and folders that a text names and the tree lacks; ``*`` stands for any."""
    named = PATH.findall(FENCE.sub("", text))
    return [name for name in named if not any(ROOT.glob(name.rstrip("/")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    if page.name != "CHANGELOG.md":  # it names what was
        assert missing_paths(page.read_text()) == []


def test_a_dead_link_and_a_missing_path_are_seen() -> None:
    page = ROOT / "docs" / "policy.md"
    assert dead_links(page, "[a](nothing.md) [b](#keys) [c](#no-such) [d](erasure.md)") == [
        "nothing.md",
        "#no-such",
    ]
    assert missing_paths("`docs/policy.md` `docs/*.md` `docs/no/such.md`") == ["docs/no/such.md"]


def test_every_room_of_the_product_stands_on_the_architecture_page_with_files_it_has() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for package in ("projections", "streams", "threadfold"):
        for room in sorted((ROOT / package).iterdir()):
            if room.is_dir() and (room / "__init__.py").exists():
                assert f"`{package}/{room.name}/`" in text, room.name
    rows = re.findall(r"^\| `(\w+/\w+/)` \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    assert len(rows) >= 20
    missing = [
        room + name
        for room, starts in rows
        for name in re.findall(r"`([\w./]+)`", starts)
        if not (ROOT / room / name).exists()
    ]
    assert missing == []


def test_every_decision_stands_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [p.name for p in folder.glob("0*.md") if f"]({p.name})" not in index] == []
