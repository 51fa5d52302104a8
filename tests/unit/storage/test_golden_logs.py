"""Logs of former releases, read by today's code: no event is lost, none is read as another, and
windows are what they were.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from projections.events import codec
from projections.events.validation import Intake
from projections.names import Key, Position, parse_key
from projections.storage.snapshots import (
    MARKER_KEY,
    VERSION,
    decode_marker,
    decode_snapshot,
    stamp_of,
)
from projections.window.meta import VERSION as FOLD
from streams.control.custom_projections import ProjectionRecord
from streams.control.state import Generation
from streams.encryption.payload_cipher import is_sealed
from streams.settings.quotas import ApiKey, Tenant
from tests.golden import make as golden_make
from tests.golden.files import HERE, Golden, bytes_of, read_lines, releases, write_lines
from tests.golden.make import state_of
from tests.support.restored_windows import restore, snapshot_offsets

ROOT = Path(__file__).resolve().parents[3]
RELEASES = releases()
LIFTED: dict[tuple[str, str], str] = {}
"""(release, type): why today's event has other fields than that release read; an upcaster's doing,
said in the CHANGELOG.
"""
PRESENT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module", params=RELEASES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(HERE / request.param)


def test_the_present_release_has_a_golden_log() -> None:
    assert {"before", PRESENT} <= set(RELEASES), (
        f"run `python -m tests.golden.make {PRESENT}` (docs/events-versions.md)"
    )


def test_every_record_is_the_event_it_was(golden: Golden) -> None:
    then, now = read_lines(golden.folder / "decoded.jsonl.gz"), golden.decoded()
    assert len(then) == len(now) == len(golden.rows)
    different = []
    for was, is_ in zip(then, now, strict=True):
        same = (
            ("is", "type", "position")
            if (golden.about["release"], was["is"]) in LIFTED
            else ("is", "type", "position", "digest")
        )
        if [was.get(name) for name in same] != [is_.get(name) for name in same]:
            different.append((was, is_))
    assert not different, (
        f"{golden.about['release']}: {different[:5]}: give the type a new version with an upcaster"
    )


def test_every_window_is_what_this_version_of_the_fold_made_of_it(golden: Golden) -> None:
    path = golden.folder / f"windows-{FOLD}.jsonl.gz"
    assert path.exists(), (
        "projections.window.meta.VERSION was raised: run `python -m tests.golden.make --expected`"
        " and say why in the CHANGELOG"
    )
    then, now = (
        {row["conversation"]: row for row in read_lines(path)},
        {row["conversation"]: row for row in golden.folded()},
    )
    assert then.keys() == now.keys()
    for name, window in now.items():
        assert window["contexts"] == then[name]["contexts"], (
            f"{name}: its context changed: raise projections.window.meta.VERSION"
        )
        assert window == then[name], (
            f"{name}: its stored form changed: raise projections.window.meta.VERSION"
        )


def test_the_control_topic_says_what_it_said(golden: Golden) -> None:
    assert state_of(golden.records("control")) == json.loads(
        (golden.folder / "state.json").read_text()
    )


def test_snapshots_of_this_version_are_restored_and_of_others_set_aside(golden: Golden) -> None:
    stamp = stamp_of(1, golden.rules)
    windows = {str(window.key): window for window in golden.windows() if window.partition == 0}
    found = golden.conversations()
    for row in read_lines(golden.folder / "snapshots.jsonl.gz"):
        name, value = row["key"], bytes_of(row["value"])
        raw = msgspec.msgpack.decode(value or b"")
        assert raw[0][2:] == [
            row["version"],
            row["fold"],
        ], "the record's stamp does not say what made it"
        read = (
            decode_marker(value, stamp)
            if name.encode() == MARKER_KEY
            else decode_snapshot(value, stamp)
        )
        if (row["version"], row["fold"]) != (VERSION, FOLD):
            assert read is None, (
                f"a snapshot of version {row['version']}, fold {row['fold']} is believed"
            )
        elif name.encode() == MARKER_KEY:
            assert read is not None
        else:
            snapshot = decode_snapshot(value, stamp)
            key = parse_key(name.encode())
            assert snapshot is not None, (
                "snapshots of this version are not read any more: raise"
                " projections.storage.snapshots.VERSION"
            )
            assert key is not None
            texts = dict(found[0, key])
            at = {offset: texts[offset] for offset in snapshot_offsets(snapshot.body)}
            assert restore(key, 0, golden.rules, snapshot.body, at).image() == windows[name].image()


# -- what is written today
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def present() -> Golden:
    return Golden(HERE / PRESENT)


def test_intake_writes_byte_for_byte_what_this_release_wrote(present: Golden) -> None:
    lines = read_lines(present.folder / "written.jsonl.gz")
    kinds = set()
    for line in lines:
        intake = Intake(now=golden_make.NOW, operator=True, **line["how"])
        intake.add(Key(*line["key"]), line["flat"], where="event", new_id=line["new_id"])
        (record,) = intake.records()
        assert record.value.decode() == line["value"], (
            "what is appended changed: a new form is a new version, with a golden log of its own"
        )
        kinds.add(codec.short_type(record.type))
    # The pieces of a spilled result are made of a result, and stand in the log.
    assert set(codec.DATA_TYPES) - kinds == {"tool.result.chunk"}


def test_the_control_topics_records_are_written_as_this_release_wrote_them(present: Golden) -> None:
    structs: dict[str, type[Any]] = {
        "generation": Generation,
        "tenant": Tenant,
        "key": ApiKey,
        "view": ProjectionRecord,
    }
    seen = set()
    for key, value in present.records("control"):
        kind, _, name = key.decode().partition("/")
        if value is not None and kind in structs and name != "live":
            assert msgspec.json.encode(msgspec.json.decode(value, type=structs[kind])) == value
            seen.add(kind)
    assert seen == structs.keys()


def test_the_golden_log_has_every_type_and_every_field(present: Golden) -> None:
    assert set(codec.DATA_TYPES) | {"refused", "unknown"} == {
        one["is"] for one in present.decoded()
    }
    given: dict[type[Any], set[str]] = {}
    for said in present.conversations().values():
        for _, event in said:
            data = event.data
            if isinstance(data, msgspec.Struct):
                given.setdefault(type(data), set()).update(msgspec.to_builtins(data))
    for struct in codec.DATA_TYPES.values():
        fields = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert fields == given[struct], (
            f"{struct.__name__}: say {sorted(fields - given[struct])} in tests/golden/stories.py"
        )
    assert sum(row.value is not None and is_sealed(row.value) for row in present.rows) > 100


def test_a_record_that_is_read_otherwise_is_found(tmp_path: Path, present: Golden) -> None:
    """The comparison itself: a log in which one character differs is not the one that was
    written.
    """
    (tmp_path / "about.json").write_text((present.folder / "about.json").read_text())
    (tmp_path / "keys.jsonl.gz").write_bytes((present.folder / "keys.jsonl.gz").read_bytes())
    lines = read_lines(present.folder / "log.jsonl.gz")
    at = next(
        i for i, line in enumerate(lines) if line["value"] and "first train" in str(line["value"])
    )
    lines[at]["value"] = lines[at]["value"].replace("first train", "first trail")
    write_lines(tmp_path / "log.jsonl.gz", lines)
    changed, then = Golden(tmp_path).decoded(), read_lines(present.folder / "decoded.jsonl.gz")
    assert [one["position"] for one, was in zip(changed, then, strict=True) if one != was] == [
        str(Position(lines[at]["partition"], lines[at]["offset"]))
    ]
    windows = read_lines(present.folder / f"windows-{FOLD}.jsonl.gz")
    assert [
        one["conversation"]
        for one, was in zip(Golden(tmp_path).folded(), windows, strict=True)
        if one != was
    ] == ["acme/station"]


def test_made_twice_it_is_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        golden_make.make(tmp_path / name / PRESENT)
    made = sorted((tmp_path / "one" / PRESENT).iterdir())
    assert len(made) == 9
    for path in made:
        assert path.read_bytes() == (tmp_path / "two" / PRESENT / path.name).read_bytes(), (
            f"{path.name} depends on chance"
        )
