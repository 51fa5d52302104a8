"""Makes a release's folder: ``python -m tests.golden.make 0.2.0``; with ``--expected`` what this
fold makes of those there are.

The same code makes the same bytes: choices are seeded, times are fixed, and keys and nonces come of
a seeded source.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from projections.events.validation import Intake, Record
from projections.names import Key, Position, partition_of
from projections.policy.policy import Policy
from projections.storage.snapshots import (
    MARKER_KEY,
    VERSION,
    Marker,
    encode_marker,
    encode_snapshot,
    stamp_of,
)
from projections.window.meta import VERSION as FOLD
from streams.control.custom_projections import ProjectionGeneration, ProjectionRecord
from streams.control.state import Generation, State
from streams.encryption.key_table import Erasure, encode_key, key_place
from streams.encryption.master_keys import master_keys_of
from streams.encryption.payload_cipher import AESGCM, KEY_BYTES, KID_BYTES, seal_event
from streams.log.log import Raw
from streams.partition.log_identity import identity
from streams.settings.quotas import ApiKey, Quota, Tenant, hash_key
from streams.settings.settings import Settings
from tests.golden.files import HERE, Golden, releases, text_of, valued, write_lines
from tests.golden.stories import STORIES
from tests.support.histories import RULES
from tests.support.talks import random_talks
from threadfold.service.spill import make_spilled, preview_of, with_spill

PARTITIONS = 4
NOW = "2026-01-31T12:00:00.000Z"
BEGAN = 1_769_860_800_000
MASTER = "golden:" + base64.b64encode(bytes(range(32))).decode()
TENANTS: dict[str, dict[str, Any]] = {"sealed": {"encryption": True}}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Keys and nonces of a seeded source, for this script alone."""
    with mock.patch("os.urandom", random.Random(seed).randbytes):
        yield


class Maker:
    """The log as it grows, what was given to intake, and the keys topic."""

    def __init__(self) -> None:
        self.rows: list[Raw] = []
        self.ends = [0] * PARTITIONS
        self.written: list[dict[str, Any]] = []
        self.keys: list[tuple[bytes, bytes | None]] = []
        self.masters = master_keys_of(Settings.load(env={}, master_keys=MASTER))
        self._data_keys: dict[bytes, tuple[bytes, AESGCM]] = {}

    def put(self, partition: int, key: bytes | None, value: bytes | None) -> Position:
        position = Position(partition, self.ends[partition])
        self.ends[partition] += 1
        self.rows.append(Raw(position, key, value, BEGAN + 1_000 * len(self.rows)))
        return position

    def record(self, key: Key, flat: dict[str, Any], **how: Any) -> Record:
        """What intake makes of an event; noted."""
        number = len(self.written)
        intake = Intake(now=NOW, operator=True, **how)
        intake.add(key, flat, where="event", new_id=f"g{number}")
        (record,) = intake.records()
        self.written.append(
            {
                "key": list(key),
                "flat": flat,
                "how": how,
                "new_id": f"g{number}",
                "value": record.value.decode(),
            }
        )
        return record

    def append(self, record: Record) -> Position:
        name, value = str(record.key).encode(), record.value
        if record.key.tenant in TENANTS and record.type != "threadfold.conversation.erased.v1":
            value = seal_event(value, *self.data_key(name))
        return self.put(partition_of(record.key, PARTITIONS), name, value)

    def data_key(self, name: bytes) -> tuple[bytes, AESGCM]:
        if name not in self._data_keys:
            kid, key = (
                random.Random(name).randbytes(KID_BYTES),
                random.Random(name + b"!").randbytes(KEY_BYTES),
            )
            place = key_place(name, kid)
            self.keys.append(
                (place, encode_key(self.masters.current, self.masters.wrap(place, key)))
            )
            self._data_keys[name] = (kid, AESGCM(key))
        return self._data_keys[name]

    # -- what is said
    # ------------------------------------------------------------------------------------------

    def talks(self, seed: int, count: int, partition: int, tenant: str) -> None:
        """Random traffic with summaries, rollbacks, repeats and junk; at the beginning of its
        partition.
        """
        names = (Key(tenant, f"talk{number}") for number in range(1_000))
        keys = [key for key in names if partition_of(key, PARTITIONS) == partition][:3]
        for name, value in random_talks(
            seed, count, partition, keys, first=self.ends[partition]
        ).rows:
            plain = (
                value is None
                or name is None
                or tenant not in TENANTS
                or not value.startswith(b'{"type"')
            )
            self.put(
                partition,
                name,
                value if plain else seal_event(value or b"", *self.data_key(name or b"")),
            )

    def story(self, key: Key, flats: list[dict[str, Any]]) -> None:
        places: dict[str, str] = {}
        for flat in flats:
            flat = json.loads(_resolved(json.dumps(flat), places))
            record = self.record(key, flat)
            places[record.id] = str(self.append(record))

    def conditions(self, key: Key) -> None:
        """Events on conditions that hold, and that do not."""
        first = self.append(
            self.record(
                key,
                {
                    "type": "turn.started",
                    "turn_id": "r",
                    "lease": {"policy": "reject", "seconds": 9},
                },
            )
        )
        hello = {"type": "message", "role": "user", "content": "on a condition"}
        for how in (
            {"expect": str(first)},
            {"expect": "0-0"},
            {"fence": first.offset},
            {"fence": 1},
            {"expect": ""},
            {"encoding": "cl100k_base"},
        ):
            self.append(self.record(key, hello, **how))

    def spilled(self, key: Key) -> None:
        """Long results, in pieces before the event that names them."""
        policy, text = Policy(spill_chars=400, soft_trim_chars=120), "A long report. " * 80
        for content in (
            text,
            [
                {"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": "https://x.invalid/y"}},
            ],
        ):
            preview = preview_of(content, policy, "event")
            assert preview is not None
            record = self.record(
                key, {"type": "tool.result", "tool_call_id": "long", "content": preview.content}
            )
            spilled = make_spilled(
                0, record, preview, policy, where="event", now=NOW, max_bytes=8 << 20
            )
            positions = [self.append(chunk) for chunk in spilled.chunks]
            self.append(with_spill(record, spilled.spill, positions))

    def strange(self, key: Key) -> None:
        """What other producers may write: other versions and types, other orders, and what is no
        event.
        """
        good = self.record(
            key, {"type": "message", "role": "user", "content": "as it should be"}
        ).value
        name, at = str(key).encode(), partition_of(key, PARTITIONS)
        whole = msgspec.json.decode(good)
        for value in (
            msgspec.json.encode({**whole, "type": "threadfold.message.v2", "id": "v2"}),
            msgspec.json.encode({**whole, "type": "threadfold.news.v1", "id": "news"}),
            msgspec.json.encode(
                {**whole, "later": [1], "id": "later", "data": {**whole["data"], "mood": "fine"}}
            ),
            msgspec.json.encode({name: whole[name] for name in reversed(whole)}),
            msgspec.json.encode({**whole, "id": "no-claim", "tokens": None}),
            msgspec.json.encode(
                {
                    **whole,
                    "id": "lies",
                    "tokens": {"count": 10**12, "encoding": "o200k_base", "exact": True},
                }
            ),
            msgspec.json.encode(
                {**whole, "id": "role", "data": {"role": "nobody", "content": "x"}}
            ),
            msgspec.json.encode({**whole, "id": "half", "data": {"role": "user"}}),
            msgspec.json.encode(
                {**whole, "id": "other", "source": "/tenants/acme/conversations/other"}
            ),
            msgspec.json.encode({**whole, "specversion": "2.0"}),
            good[:-7],
            b"",
            b"\xff\xfe",
            b"[" * 500,
            None,
        ):
            self.put(at, name, value)
        for odd in (None, b"no-slash", b"\xc3\x28/x", b"a/b/c"):
            self.put(at, odd, good)


def _resolved(text: str, places: dict[str, str]) -> str:
    for id_, place in places.items():
        text = text.replace(f'"@{id_}"', f'"{place}"')
    return text


def control_records() -> list[tuple[bytes, bytes | None]]:
    """Every kind of record of the control topic with all its fields, those that are gone, and one
    of a kind that nobody knows.
    """
    quota = Quota(1.5, 2.5, 3.5, 2.0, 2.0, 10.0, 4, 5)
    key = ApiKey("acme", ("read", "erase"), "ci", "2026-01-31T12:00:00Z", "2030-01-31T12:00:00Z")
    structs: list[tuple[str, Any]] = [
        ("generation/1", Generation(1, PARTITIONS, {"min_messages": 4})),
        ("generation/live", 1),
        ("tenant/acme", Tenant("acme", version=1)),
        ("tenant/sealed", Tenant("sealed", {"encryption": True}, {"encryption": False}, quota, 1)),
        ("tenant/acme", Tenant("acme", {}, {"min_messages": 9}, version=2)),
        ("tenant/acme", Tenant("acme", {}, {"min_messages": 7}, version=2)),
        (f"key/{hash_key('golden')}", key),
        (f"key/{hash_key('plain')}", ApiKey("acme")),
        (f"key/{hash_key('revoked')}", ApiKey("acme")),
        (
            "generation/2",
            Generation(2, PARTITIONS, {}, {"sealed": {"encryption": True}}, "building"),
        ),
        ("generation/3", Generation(3, PARTITIONS, {}, {}, "ready")),
        ("view/usage", ProjectionRecord(1, 1, {1: ProjectionGeneration(1, (5, 0, 7, 9))})),
        (
            "view/usage",
            ProjectionRecord(
                2,
                2,
                {
                    1: ProjectionGeneration(1, (5, 0, 7, 9)),
                    2: ProjectionGeneration(2, (9, 9, 9, 9)),
                },
            ),
        ),
        ("weather/today", {"of": "a later release"}),
    ]
    records: list[tuple[bytes, bytes | None]] = [
        (name.encode(), msgspec.json.encode(value)) for name, value in structs
    ]
    return [
        *records,
        (f"key/{hash_key('revoked')}".encode(), None),
        (b"generation/3", None),
        (b"generation/live", b"2"),
    ]


def state_of(records: list[tuple[bytes, bytes | None]]) -> dict[str, Any]:
    """What a service holds of the control topic, as plain values."""
    state = State()
    for key, value in records:
        state.put(key, value)
    held = {
        "generations": state.generations,
        "live": state.live,
        "tenants": state.tenants,
        "keys": state.keys,
        "views": state.projections,
    }
    return {name: valued(part) for name, part in held.items()}


def snapshot_records(golden: Golden) -> list[dict[str, Any]]:
    """Snapshots of every window of the first partition at its end, and the marker."""
    rows = [row for row in golden.rows if row.position.partition == 0]
    last, stamp = rows[-1], stamp_of(1, golden.rules)
    windows = [window for window in golden.windows() if window.partition == 0]
    found = [
        (str(w.key).encode(), encode_snapshot(w, stamp, last.offset, identity(last)))
        for w in windows
    ]
    found.append(
        (
            MARKER_KEY,
            encode_marker(
                Marker(stamp, last.offset, identity(last), 0, len(windows), last.timestamp)
            ),
        )
    )
    return [
        {
            "key": text_of(key),
            "value": {"base64": base64.b64encode(value).decode()},
            "version": VERSION,
            "fold": FOLD,
        }
        for key, value in found
    ]


def make(folder: Path) -> None:
    """Write all files of a release into its folder."""
    folder.mkdir()
    maker = Maker()
    with seeded(7):
        maker.talks(1, 160, 0, "acme")
        maker.talks(2, 120, 1, "sealed")
        for tenant, name, flats in STORIES:
            maker.story(Key(tenant, name), flats)
        maker.conditions(Key("acme", "turns"))
        maker.spilled(Key("acme", "long"))
        maker.strange(Key("acme", "strange"))
    erased = [row for row in maker.rows if row.key == b"sealed/gone"][-1]
    gone = [place for place, _ in maker.keys if place.startswith(b"sealed/gone/")]
    erasure = Erasure("done", NOW, "opaque", str(erased.position), NOW, "ab" * 32)
    maker.keys += [
        (b"sealed/gone/erased", msgspec.json.encode(erasure)),
        *((place, None) for place in gone),
    ]
    about = {
        "release": folder.name,
        "policy": RULES.deployment,
        "tenants": TENANTS,
        "master_keys": MASTER,
    }
    (folder / "about.json").write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")
    write_lines(
        folder / "log.jsonl.gz",
        (
            {
                "partition": r.position.partition,
                "offset": r.offset,
                "timestamp": r.timestamp,
                "key": text_of(r.key),
                "value": text_of(r.value),
            }
            for r in maker.rows
        ),
    )
    write_lines(folder / "written.jsonl.gz", maker.written)
    for name, records in (("keys", maker.keys), ("control", control_records())):
        write_lines(
            folder / f"{name}.jsonl.gz",
            ({"key": text_of(key), "value": text_of(value)} for key, value in records),
        )
    golden = Golden(folder)
    write_lines(folder / "decoded.jsonl.gz", golden.decoded())
    write_lines(folder / "snapshots.jsonl.gz", snapshot_records(golden))
    (folder / "state.json").write_text(
        json.dumps(state_of(control_records()), indent=2, sort_keys=True) + "\n"
    )
    expect(golden)


def expect(golden: Golden) -> None:
    """Write what this fold makes of a release's log."""
    write_lines(golden.folder / f"windows-{FOLD}.jsonl.gz", golden.folded())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", nargs="?", help="the folder to make, which must not exist")
    parser.add_argument(
        "--expected",
        action="store_true",
        help="write what this version of the fold makes of every folder",
    )
    args = parser.parse_args()
    if args.expected:
        for name in releases():
            expect(Golden(HERE / name))
    elif args.release:
        make(HERE / args.release)
    else:
        parser.error("name a release, or --expected")


if __name__ == "__main__":
    main()
