"""A gateway in a process of its own, until its stdin ends: what `threadfold gateway` runs."""

from __future__ import annotations

import os
import signal
import sys
import threading

from benchmarks.support.children import read_job
from threadfold.gateway import serve


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    settings, _, _ = read_job()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    serve(settings)
