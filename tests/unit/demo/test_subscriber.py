"""The demo's subscriber reads what ``threadfold summaries`` prints, whole lines only, repeats apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streams.settings.settings import Settings
from threadfold.demo.subscriber import Subscriber


def line(kind: str, **data: Any) -> str:
    source = "/tenants/pairs/conversations/chat-1"
    return json.dumps({"type": f"threadfold.{kind}.v1", "source": source, "data": data}) + "\n"


def test_summaries_voidings_and_repeats_are_counted(tmp_path: Path) -> None:
    subscriber = Subscriber.of(Settings(kafka="127.0.0.1:1", redis="redis://h/0"), tmp_path)
    subscriber.read()
    assert subscriber.records == 0
    summary = line("summary", summary_id="s1", text="they  met", span={"count": 7})
    subscriber.output.write_text("a log line\n" + summary + summary[:20])
    subscriber.read()
    assert (subscriber.records, subscriber.received) == (1, {"s1"})
    with subscriber.output.open("a") as file:
        file.write(summary[20:] + line("summary.voided", summary_id="s1", by="r"))
    subscriber.read()
    assert (subscriber.records, subscriber.received, subscriber.voided) == (3, {"s1"}, {"s1"})
    assert subscriber.sample == "they met"
    assert subscriber.sample_of == "a summary of 7 events of pairs/chat-1"
