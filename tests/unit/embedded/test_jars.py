"""The cache of Kafka's jars: where it is, when it counts as complete, and what is said when it
cannot be filled.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from projections.errors import EmbeddedUnavailable
from threadfold.embedded import jars


def test_every_pinned_jar_has_a_version_and_a_hash() -> None:
    pinned = jars.pinned_jars()
    assert jars.KAFKA in [jar.coordinate for jar in pinned]
    assert jars.LOGGING in [jar.coordinate for jar in pinned]
    assert len({jar.filename for jar in pinned}) == len(pinned)
    for jar in pinned:
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", jar.coordinate)


def test_cache_is_complete_only_with_every_jar_of_its_marker_at_its_size(tmp_path: Path) -> None:
    pinned = [jars.Jar("g:a:1", "0" * 64), jars.Jar("g:b:2", "1" * 64)]
    for jar in pinned:
        (tmp_path / jar.filename).write_bytes(b"jar")
    assert not jars.is_complete(tmp_path, pinned)
    sizes = {f"{jar.filename} {jar.sha256}": 3 for jar in pinned}
    (tmp_path / jars.MARKER).write_text(json.dumps(sizes))
    assert jars.is_complete(tmp_path, pinned)
    assert not jars.is_complete(tmp_path, [pinned[0], jars.Jar("g:b:2", "2" * 64)])
    (tmp_path / "b-2.jar").write_bytes(b"ja")
    assert not jars.is_complete(tmp_path, pinned)
    (tmp_path / jars.MARKER).write_text("{")
    assert not jars.is_complete(tmp_path, pinned)


def test_cache_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(EmbeddedUnavailable, match=r"cannot be kept in .*THREADFOLD_CACHE"):
        jars.kafka_jars(tmp_path / "cache")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fetch of this process and its children goes to a proxy that is not there, once the
    machine's own cache is full.
    """
    jars.kafka_jars()
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)


def seeded(cache: Path) -> Path:
    """A cache folder with all jars of the machine's own cache and what a killed fetch leaves: no
    marker, a staging folder.
    """
    have = jars.kafka_jars()
    folder = cache / have[0].parent.name
    (folder / "fetching-killed").mkdir(parents=True)
    for jar in have:
        shutil.copy(jar, folder)
    return folder


def test_jars_that_cannot_be_fetched_are_one_clear_error(tmp_path: Path, no_network: None) -> None:
    with pytest.raises(
        EmbeddedUnavailable,
        match=r"Could not fetch \S+:\S+:\S+ for the embedded Kafka .*THREADFOLD_KAFKA",
    ):
        jars.kafka_jars(tmp_path)
    folder = next(tmp_path.glob("kafka-*/"))
    assert list(folder.iterdir()) == []  # nothing half-written stays


def test_two_processes_complete_one_cache_without_harm_and_offline(
    tmp_path: Path, no_network: None
) -> None:
    folder = seeded(tmp_path)
    code = (
        "import sys; from pathlib import Path; from threadfold.embedded.jars import *;"
        " print(len(kafka_jars(Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    pinned = jars.pinned_jars()
    assert [process.communicate()[0].strip() for process in both] == [str(len(pinned))] * 2
    assert jars.is_complete(folder, pinned)
    assert {path.name for path in folder.iterdir()} == {
        jars.MARKER,
        *(jar.filename for jar in pinned),
    }


def test_damaged_jar_is_fetched_anew_and_only_it(tmp_path: Path) -> None:
    folder = seeded(tmp_path)
    smallest = min(folder.glob("*.jar"), key=lambda path: path.stat().st_size)
    whole = smallest.read_bytes()
    smallest.write_bytes(whole[:-1])
    others = {path: path.stat().st_ino for path in folder.glob("*.jar") if path != smallest}
    try:
        jars.kafka_jars(tmp_path)
    except EmbeddedUnavailable as error:
        if "Could not fetch" in str(error):
            pytest.skip(f"no network to fetch one jar: {error}")
        raise
    assert smallest.read_bytes() == whole
    assert {path: path.stat().st_ino for path in others} == others
