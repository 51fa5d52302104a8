"""Settings of a deployment that seals all payloads, beside one that is the same but for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.support.stacks import Bench
from streams.encryption.master_keys import new_master
from streams.settings.settings import Settings


@contextmanager
def sealed_and_plain(bench: Bench, name: str, partitions: int) -> Iterator[dict[str, Settings]]:
    """``ours``: encryption on for every tenant; ``plain``: off. Each has topics of its own."""
    with TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.json"
        policy.write_text('{"encryption": true}')
        master = new_master()
        yield {
            "ours": bench.settings(
                f"{name}.sealed", partitions=partitions, policy=str(policy), master_keys=master
            ),
            "plain": bench.settings(f"{name}.plain", partitions=partitions, master_keys=master),
        }
