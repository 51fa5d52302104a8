"""``python -m threadfold.demo``: plays real conversations, wipes Redis, compares every window.

Exit code 0: every promise is true. 1: one is broken. 2: the demo could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from secrets import token_hex
from types import FrameType

from rich.console import Console

from projections.errors import InvalidSettings, ThreadfoldError
from streams.settings.settings import Settings
from threadfold.demo.agents import agent_scripts
from threadfold.demo.display import Display
from threadfold.demo.parts import demo_settings, generation_number
from threadfold.demo.run import Demo, Place
from threadfold.demo.sources import Script, join_sessions, load_sessions
from threadfold.embedded.folder import make_private
from threadfold.embedded.stack import EmbeddedStack

USUAL, QUICK = (48, 12, 40), (6, 3, 12)
"""Long chats, sessions in each, turns of each agent. There is one agent to four chats."""
MAX_AGENTS = 24
INTERRUPTED = 130


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options, checked; argparse itself exits with 2 on a wrong one."""
    parser = argparse.ArgumentParser(
        prog="python -m threadfold.demo",
        description="Play real conversations through the pipeline, wipe Redis, and compare every"
        " window. Exit 0 if all promises are true, 1 if one is broken, 2 if it could not run.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--all", action="store_true", help="play the whole dataset: 258,145 messages")
    size.add_argument(
        "--conversations",
        type=int,
        metavar="N",
        help=f"how many long chats to play [default: {USUAL[0]}]",
    )
    size.add_argument("--quick", action="store_true", help="a tiny run, for tests")
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="selects what is played and in which order [default: 1]",
    )
    keep = (
        "keep data and logs in DIR (new or empty); `threadfold up --data DIR` opens them. On"
        " configured servers, keep the topics"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help=keep)
    return parser.parse_args(arguments)


def scripts_of(options: argparse.Namespace) -> list[Script]:
    """The scripts to play; raises :class:`InvalidSettings` if the dataset is too small."""
    count, sessions, turns = QUICK if options.quick else USUAL
    if options.conversations is not None:
        count = options.conversations
    chats = join_sessions(load_sessions(), None if options.all else count, sessions, options.seed)
    agents = min(max(2, len(chats) // 4), MAX_AGENTS)
    return chats + agent_scripts(agents, turns, options.seed)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    options = parse(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    console = Console()
    _sigterm_as_interrupt()
    try:
        with Display(console) as show:
            _run(options, show)
    except ThreadfoldError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return INTERRUPTED
    return 0


def _sigterm_as_interrupt() -> None:
    """Let SIGTERM end the demo as tidily as Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)


def _run(options: argparse.Namespace, show: Display) -> None:
    base = Settings.load()
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        raise InvalidSettings(f"--keep {options.keep}: the folder is not empty; name a new one")
    scripts = scripts_of(options)
    show.say(
        f"{len(scripts)} conversations, {sum(s.length for s in scripts):,} events; real chats and"
        f" simulated agents, seed {options.seed}"
    )
    run = token_hex(6)
    folder = (
        Path(tempfile.mkdtemp(prefix="threadfold-demo-")) if options.keep is None else options.keep
    )
    make_private(folder)
    try:
        began = time.monotonic()
        # `threadfold up --data` looks for it there.
        data = None if options.keep is None else options.keep / "stack"
        with EmbeddedStack(
            data, kafka=base.kafka or None, redis=base.redis or None, passwords=True
        ) as stack:
            for name, address, own in (
                ("Kafka", stack.kafka, stack.embedded_kafka),
                ("Redis", stack.redis, stack.embedded_redis),
            ):
                where = "embedded" if own is not None else "configured"
                show.say(
                    f"{where} {name} at {address.rpartition('@')[2]}, after"
                    f" {time.monotonic() - began:.1f} s"
                )
            settings = demo_settings(base, stack, run)
            place = Place(
                settings,
                generation_number(stack, run),
                folder,
                own_kafka=stack.embedded_kafka is not None,
                own_redis=stack.embedded_redis is not None,
                keep=options.keep is not None,
            )
            asyncio.run(Demo(place, scripts, options.seed, show).run())
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
