"""Module names that no import checks (in strings, docstrings and pages) name modules that exist, and
no merge leaves its markers behind.
"""

from __future__ import annotations

import re

from tests.unit.repository.test_rules import FOLDERS, ROOT, repository_files

NAME = re.compile(
    r"(?<![\w./-])(?:projections|streams|threadfold|threadfold_client|tests|benchmarks)(?:\.[a-z]\w*)+(?![\w-]|\.\w)"
)
MARKERS = re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE)
WORDS = {"toml", "lock", "md", "v1", "py", "yaml", "json"}
"""Last parts of names that are files' or events', not modules'."""


def resolves(name: str) -> bool:
    """Whether a dotted name is a package, a module, or something a module's text speaks of."""
    parts = name.split(".")
    here = (ROOT / FOLDERS[parts[0]]).parent if parts[0] in FOLDERS else ROOT
    for at, part in enumerate(parts):
        if (here / part).is_dir():
            here /= part
            continue
        file = here / f"{part}.py"
        rest = parts[at + 1 :] if file.exists() else parts[at:]
        text = (file if file.exists() else here / "__init__.py").read_text()
        return len(rest) <= 2 and all(re.search(rf"\b{word}\b", text) for word in rest)
    return True


def test_modules_named_in_texts_exist() -> None:
    wrong = []
    for path in repository_files():
        if path.suffix not in {".py", ".md", ".toml", ".yml", ".yaml"}:
            continue
        for found in NAME.finditer(path.read_text()):
            words = found[0].split(".")
            # threadfold.events and the like are topics, types and settings: one word after the dot.
            if words[-1] in WORDS or (words[0] == "threadfold" and not is_path(words)):
                continue
            if not resolves(found[0]):
                wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert not wrong, "\n".join(wrong)


def is_path(words: list[str]) -> bool:
    """Whether the first two words are a package of the product and one of its rooms."""
    return (ROOT / words[0] / words[1]).exists() or (ROOT / words[0] / f"{words[1]}.py").exists()


def test_no_file_has_the_markers_of_a_merge() -> None:
    wrong = []
    for path in repository_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # not text
            continue
        if MARKERS.search(text):
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, "\n".join(wrong)
