"""How many of the records that the rules find in real messages are worth keeping.

``judgements.json`` has 200 messages of the chitchat dataset: each is named by its conversation and
its number there, with a digest of each record that is found in it, and whether that is true, stands
alone and is worth keeping. One reader, a language model, judged them one by one. They were drawn
with ``random.Random(18).sample(sorted(ids), 200)`` of the 6,736 messages (of 258,145) in which the
rules found anything on 23 November 2026. The texts are in the package ``chitchat-dataset``.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from projections.events import types as events
from projections.memory.extraction.extractor import extract
from tests.support.taught import event
from threadfold.demo.sources import Session

JUDGED = json.loads((Path(__file__).parent / "judgements.json").read_text())
PAGE = Path(__file__).resolve().parents[4] / "docs" / "memory.md"
LEAST = 0.85


@pytest.fixture(scope="module")
def messages() -> dict[str, tuple[str, str]]:
    """The text and time of each judged message."""
    spec = find_spec("chitchat_dataset")
    if spec is None or spec.origin is None:
        pytest.skip("the package chitchat-dataset is not installed: no texts of the messages")
    raw = (Path(spec.origin).parent / "dataset.json").read_bytes()
    sessions = msgspec.json.decode(raw, type=dict[str, Session])
    found = {}
    for name in JUDGED:
        session, number = name.split("/")
        message = sessions[session].in_order[int(number)]
        found[name] = message.text, message.timestamp
    return found


def test_most_of_what_the_rules_find_in_real_messages_is_worth_keeping(
    messages: dict[str, tuple[str, str]],
) -> None:
    good, unknown = [], []
    for name, (text, time) in messages.items():
        for record in extract([event(0, events.Message("user", text), time)]):
            digest = sha256(record.text.encode()).hexdigest()[:12]
            if digest in JUDGED[name]:
                good.append(JUDGED[name][digest])
            else:
                unknown.append((name, digest, text, record.text))
    assert unknown == [], "judge these, and add their digests"
    share = sum(good) / len(good)
    assert share >= LEAST
    stated = f"of {len(good)} records that the rules find in 200 real messages, {sum(good)} ("
    assert f"{stated}{share:.0%})".replace("%", " %") in PAGE.read_text(encoding="utf-8")
