"""Kafka's jars: downloaded once into a cache folder, checked against pinned hashes.

``kafka.lock`` beside this file names each jar with its SHA-256. ``python -m
threadfold.embedded.jars`` resolves the dependencies anew and prints a fresh lock, for the day
Kafka's version changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projections.errors import EmbeddedUnavailable
from streams.runtime.cache_folder import cache_folder

KAFKA = "org.apache.kafka:kafka_2.13:4.1.1"

LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"
"""What joins Kafka's logging calls to log4j; without it a broker logs nothing. Not among the
dependencies Kafka declares.
"""

MARKER = "jars.json"

_TIMEOUT = 30  # seconds of silence after which a download is given up
_PARALLEL = 4


@dataclass(frozen=True)
class Jar:
    """One pinned jar: its coordinate ``group:artifact:version`` and SHA-256 in lower-case hex."""

    coordinate: str
    sha256: str

    @property
    def filename(self) -> str:
        """The jar's file name, ``artifact-version.jar``."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def pinned_jars() -> list[Jar]:
    """Return the jars of ``kafka.lock``, in its order."""
    lines = (Path(__file__).parent / "kafka.lock").read_text().splitlines()
    return [Jar(*reversed(line.split())) for line in lines if line and not line.startswith("#")]


def kafka_jars(cache: Path | None = None) -> list[Path]:
    """Return the paths of Kafka's jars, downloaded (43 MB) if the cache lacks any."""
    return cached((cache or cache_folder()) / f"kafka-{KAFKA.rpartition(':')[2]}", pinned_jars())


def cached(folder: Path, jars: list[Jar]) -> list[Path]:
    """Return the paths of these jars in a folder, downloaded and checked if any is missing.

    Of several processes one downloads and the others wait. One that is killed meanwhile leaves no
    lock and no half-written jar in use. Raises EmbeddedUnavailable when the folder cannot be
    written or a jar cannot be downloaded.
    """
    try:
        if not is_complete(folder, jars):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_suffix(".fetch-lock")):
                if not is_complete(folder, jars):
                    _fetch(folder, jars)
    except OSError as error:
        raise EmbeddedUnavailable(
            f"Kafka's jars cannot be kept in {folder}: {error.strerror or error}; make it writable"
            " or set THREADFOLD_CACHE."
        ) from error
    return [folder / jar.filename for jar in jars]


def is_complete(folder: Path, jars: list[Jar]) -> bool:
    """Whether the folder's marker names just these jars, and their sizes are unchanged."""
    try:
        sizes = json.loads((folder / MARKER).read_text())
        return isinstance(sizes, dict) and all(
            (folder / jar.filename).stat().st_size == sizes.get(f"{jar.filename} {jar.sha256}")
            for jar in jars
        )
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the kernel gives back when this process ends, however it ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, jars: list[Jar]) -> None:
    """Fetch and check what the folder lacks, then write its marker. The caller holds the lock."""
    folder.mkdir(exist_ok=True)
    # Left by a process that was killed: this one holds the lock, so nobody uses it.
    for stale in folder.glob("fetching-*"):
        shutil.rmtree(stale, ignore_errors=True)
    (folder / MARKER).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder) as staging:
        context = _maven(Path(staging))
        with ThreadPoolExecutor(_PARALLEL) as pool:
            tasks = [pool.submit(_fetch_one, context, folder, jar) for jar in jars]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    sizes = {f"{jar.filename} {jar.sha256}": (folder / jar.filename).stat().st_size for jar in jars}
    part = folder / f"{MARKER}.part"
    part.write_text(json.dumps(sizes, indent=1))
    part.replace(folder / MARKER)


def _maven(repository: Path) -> Any:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise EmbeddedUnavailable(
            "The embedded Kafka needs the package jgo to fetch its jars; pip install"
            " 'threadfold[embedded]', or point THREADFOLD_KAFKA at a running Kafka."
        ) from error
    return MavenContext(repo_cache=repository, resolver=PythonResolver(), timeout=_TIMEOUT)


def _fetch_one(context: Any, folder: Path, jar: Jar) -> None:
    target = folder / jar.filename
    if target.is_file() and _sha256(target) == jar.sha256:
        return
    try:
        fetched = Path(context.create_dependency(jar.coordinate).artifact.resolve())
    except (OSError, RuntimeError) as error:  # jgo's "not found" is a RuntimeError
        raise EmbeddedUnavailable(
            f"Could not fetch {jar.coordinate} for the embedded Kafka ({_shortly(error)}); connect"
            f" to the network once, copy a filled {folder} here, or point THREADFOLD_KAFKA at a"
            " running Kafka."
        ) from error
    if _sha256(fetched) != jar.sha256:
        raise EmbeddedUnavailable(
            f"The downloaded {jar.coordinate} does not have the pinned SHA-256 {jar.sha256} and was"
            " deleted. Try again; if this repeats, something between here and the repository"
            " changes the file."
        )
    fetched.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shortly(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}…"


def lock_lines() -> list[str]:
    """Resolve Kafka's dependencies over the network and return the lines of a fresh ``kafka.lock``,
    sorted by coordinate.

    The logging bridge is fetched without its dependencies: resolved together, its managed versions
    override Kafka's own (kafka-clients would become 3.8).
    """
    with tempfile.TemporaryDirectory() as repository:
        context = _maven(Path(repository))
        kafka = context.create_dependency(KAFKA)
        inputs, others = context.resolver.resolve([kafka])
        lines = []
        for dependency in [*inputs, *others, context.create_dependency(LOGGING)]:
            artifact = dependency.artifact
            coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
            lines.append(f"{_sha256(Path(artifact.resolve()))} {coordinate}")
    return sorted(lines, key=lambda line: line.split()[1])


if __name__ == "__main__":
    sys.stdout.write(
        "# SHA-256 and coordinate of each jar; written by python -m threadfold.embedded.jars\n"
    )
    sys.stdout.write("\n".join(lock_lines()) + "\n")
