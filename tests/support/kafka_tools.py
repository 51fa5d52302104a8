"""Kafka's own command-line tools (``kafka-tools``, for tests only), run with the embedded stack's
Java.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from projections.errors import EmbeddedUnavailable
from streams.runtime.cache_folder import cache_folder
from threadfold.embedded.jars import KAFKA, Jar, cached, kafka_jars
from threadfold.embedded.java import find_java

TOOLS = Jar(
    "org.apache.kafka:kafka-tools:4.1.1",
    "8a6939f310a61119cedaffc144119e9b2a374e32a7ec18f78e49ce5aeb71d6b0",
)
"""Of the Kafka that the stack runs; what it needs beside itself is among Kafka's own jars."""
LIMIT = 90.0


def tools_classpath() -> str:
    """Kafka's jars and the tools', fetched into the cache once.

    Where they cannot be fetched the test fails, unless the machine resolves no name at all (it is
    offline): then it is skipped.
    """
    assert KAFKA.rpartition(":")[2] == TOOLS.coordinate.rpartition(":")[2], (
        "the tools must be of the Kafka that is run"
    )
    try:
        jars = [*kafka_jars(), *cached(cache_folder() / "kafka-tools", [TOOLS])]
    except EmbeddedUnavailable as error:
        if offline():
            pytest.skip(f"offline, and Kafka's tools are not in the cache yet: {error}")
        pytest.fail(f"Kafka's tools cannot be fetched: {error}", pytrace=False)
    return os.pathsep.join(map(str, jars))


def offline() -> bool:
    """Whether nothing outside can be reached: no proxy is named, and the usual repository's name is
    not known.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "CI")):
        return False
    try:
        socket.getaddrinfo("apache.org", 443)
    except OSError:
        return True
    return False


async def tool(name: str, *arguments: str, text: bytes = b"", folder: Path) -> tuple[str, str]:
    """Run ``org.apache.kafka.tools.NAME`` to its end; returns what it wrote on stdout and stderr.
    Fails the test when it fails.
    """
    quiet = folder / "log4j2.properties"
    quiet.write_text(
        "status = off\nappender.err.type = Console\nappender.err.name = err\nappender.err.target ="
        " SYSTEM_ERR\nappender.err.layout.type = PatternLayout\nappender.err.layout.pattern = %p"
        " %c: %m%n\nrootLogger.level = warn\nrootLogger.appenderRef.err.ref = err\n"
    )
    process = await asyncio.create_subprocess_exec(
        str(find_java().path),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={quiet}",
        "-cp",
        tools_classpath(),
        f"org.apache.kafka.tools.{name}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate(text)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, (
        f"{name} ended with {process.returncode}: {err.decode()} {out.decode()}"
    )
    return out.decode(), err.decode()
