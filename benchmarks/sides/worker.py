"""A worker as ``threadfold worker`` runs it, Faust, projector, compactor and all, for figures that
measure from outside.
"""

from __future__ import annotations

import sys

from benchmarks.support.children import read_job
from streams.worker import run_worker

if __name__ == "__main__":
    settings, _, _ = read_job()
    sys.exit(run_worker(settings))
