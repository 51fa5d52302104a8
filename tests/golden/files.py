"""A release's folder: reading it, writing it, and what today's code makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from projections.events.codec import short_type
from projections.events.types import AnyEvent, Event, OtherEvent
from projections.events.untrusted import Undecodable
from projections.fold.replay import Logged, replay
from projections.names import Key, Position, parse_key
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.window.window import Window
from streams.control.key_ring import KeyRing
from streams.encryption.payload_cipher import PayloadCipher, Unsealed, read_event
from streams.log.history import event_of
from streams.log.log import Raw
from streams.settings.settings import Settings
from threadfold.service.documents import document

HERE = Path(__file__).parent


def releases() -> list[str]:
    """The releases that have a folder, in no order."""
    return sorted(path.parent.name for path in HERE.glob("*/about.json"))


def text_of(raw: bytes | None) -> Any:
    """Bytes as JSON holds them: text where they are UTF-8."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def bytes_of(text: Any) -> bytes | None:
    if text is None or isinstance(text, str):
        return None if text is None else text.encode()
    return base64.b64decode(text["base64"])


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


class Golden:
    """What a release left in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / "about.json").read_text())
        self.rules = Rules(self.about["policy"], self.about["tenants"])

    @cached_property
    def rows(self) -> list[Raw]:
        lines = read_lines(self.folder / "log.jsonl.gz")
        return [
            Raw(
                Position(r["partition"], r["offset"]),
                bytes_of(r["key"]),
                bytes_of(r["value"]),
                r["timestamp"],
            )
            for r in lines
        ]

    @cached_property
    def seals(self) -> PayloadCipher:
        """The keys topic's records under the release's master key; nothing is asked of a broker."""
        if not (self.folder / "keys.jsonl.gz").exists():
            return Unsealed()
        ring = KeyRing(
            Settings.load(env={}, master_keys=self.about["master_keys"]), lambda tenant: False
        )
        for record in self.records("keys"):
            ring.table.put(*record)
        return ring

    def records(self, name: str) -> list[tuple[bytes, bytes | None]]:
        """Keys and values of another topic."""
        return [
            (bytes_of(row["key"]) or b"", bytes_of(row["value"]))
            for row in read_lines(self.folder / f"{name}.jsonl.gz")
        ]

    def decoded(self) -> list[dict[str, Any]]:
        """What each record is, in the log's order."""
        return [{"position": str(row.position), **fact(row, self.seals)} for row in self.rows]

    def conversations(self) -> dict[tuple[int, Key], list[Logged]]:
        """The events that the fold takes, by partition and conversation."""
        found: dict[tuple[int, Key], list[Logged]] = {}
        for row in self.rows:
            key = parse_key(row.key) if row.key is not None else None
            event = event_of(row, key, self.seals) if key is not None else None
            if key is not None and event is not None:
                found.setdefault((row.position.partition, key), []).append((row.offset, event))
        return found

    def windows(self) -> list[Window]:
        return [
            replay(key, partition, self.rules, events)
            for (partition, key), events in sorted(self.conversations().items())
        ]

    def folded(self) -> list[dict[str, Any]]:
        """Every window's digests and its context in OpenAI's format, which a person can read."""
        return [shown(window) for window in self.windows()]


def fact(row: Raw, seals: PayloadCipher) -> dict[str, Any]:
    """What a record is: the event's name and a digest of all its fields, or that it is refused or
    unknown.
    """
    key = parse_key(row.key) if row.key is not None else None
    if key is None or row.key is None or row.value is None:
        return {"is": "refused", "why": "no key" if key is None else "no value"}
    try:
        event = read_event(seals, row.key, row.value)
    except Undecodable as error:
        return {"is": "refused", "why": str(error)}
    if event.source != key.source:
        return {"is": "refused", "why": "the source is not the key's"}
    if isinstance(event, OtherEvent):
        return {"is": "unknown", "type": event.type, "digest": digest(event)}
    return {"is": short_type(str(type(event).__struct_config__.tag)), "digest": digest(event)}


def digest(event: AnyEvent) -> str:
    """Over all fields with a value (see :func:`valued`)."""
    return sha256(msgspec.json.encode(valued(event), order="deterministic")).hexdigest()[:16]


def valued(value: Any) -> Any:
    """Plain values, defaults included, as a changed default reads old records otherwise; without
    fields that hold nothing, so that a field which a later release adds changes nothing.
    """
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        found = {name: valued(field) for name, field in held.items() if field is not msgspec.UNSET}
        # The version of an event's type is none of its fields.
        found["tag"] = None if isinstance(value, Event) else tag
        return {
            name: field
            for name, field in found.items()
            if field not in (None, [], {}) and field is not False
        }
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        return {str(name): valued(item) for name, item in value.items()}
    return [valued(item) for item in value] if isinstance(value, list | tuple) else value


def shown(window: Window) -> dict[str, Any]:
    contexts: dict[str, Any] = {}
    for fmt in ("openai", "anthropic", "events"):
        try:
            raw = document(window, fmt)
        except DoesNotFit as error:
            contexts[fmt] = f"refused: {type(error).__name__}"
            continue
        # Added since the oldest files were made.
        raw = re.sub(rb'"awaits":"[a-z]+",', b"", raw)
        contexts[fmt] = sha256(raw).hexdigest()[:16]
        if fmt == "openai":
            contexts[fmt] = json.loads(raw)
            positions = contexts[fmt].pop("positions")
            assert len(positions) == len(contexts[fmt]["messages"])
    return {
        "conversation": str(window.key),
        "partition": window.partition,
        "image": sha256(window.image()).hexdigest(),
        "count": window.meta.count,
        "digest": window.meta.digest.hex(),
        "contexts": contexts,
    }
