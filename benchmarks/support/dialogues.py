"""Long dialogues of two people with questions about them, in LoCoMo's form, as sets of figure
`recall`.

The file is not part of the repository: whoever has it names it. It is a zip archive or a JSON file
of dialogues. Each has sessions of messages, the time of each session, and questions that name the
messages that answer them. A dialogue is one user's; each session is a conversation of its own, and
both speak as users with names. A message's text is followed by the caption of its picture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from benchmarks.support.recall_set import TENANT, Line, Question, RecallSet, Writer
from projections.names import Key

_TIME = "%I:%M %p on %d %B, %Y"
_SESSION = re.compile(r"session_([0-9]+)")
_NAMED = re.compile(r"D[0-9]+:[0-9]+")
ASKED_AFTER = timedelta(days=1)


def dialogue_sets(path: Path) -> list[RecallSet]:
    """A set for each dialogue of a file, in the order of their names."""
    return [_made(number, one) for number, one in enumerate(_documents(path))]


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".zip":
        texts = [path.read_bytes()]
    else:
        with ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".json"))
            texts = [archive.read(name) for name in names]
    for found in map(json.loads, texts):
        for one in found if isinstance(found, list) else [found]:
            yield one | one.get("conversation", {})


def _made(number: int, dialogue: Mapping[str, Any]) -> RecallSet:
    made, user = RecallSet(), f"dialogue-{number}"
    writer = Writer(made)
    places: dict[str, set[str]] = {}
    sessions = sorted(int(found[1]) for name in dialogue if (found := _SESSION.fullmatch(name)))
    for session in sessions:
        said = dialogue[f"session_{session}"]
        begin = datetime.strptime(dialogue[f"session_{session}_date_time"], _TIME)
        begin = begin.replace(tzinfo=UTC)
        lines = [Line(_text(one), one["speaker"], planted=0, place=one["dia_id"]) for one in said]
        writer.write(Key(TENANT, f"{user}-{session}"), user, begin, lines, [places])
        made.asked_at = begin + ASKED_AFTER
    for asked in dialogue["qa"]:
        named = _NAMED.findall(" ".join(asked.get("evidence", ())))
        right = frozenset().union(*(places.get(one, set()) for one in named))
        if right:
            category = str(asked["category"])
            made.questions.append(Question(user, asked["question"], category, category, right))
    return made


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(message[part] for part in ("text", "blip_caption") if message.get(part))
