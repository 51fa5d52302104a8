"""``python -m benchmarks [FIGURE …]``: measure figures, one JSON line each on stdout, all else on
stderr.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import compare
from benchmarks.harness import Args, figures, measure, say


def main(argv: list[str] | None = None) -> int:
    """Run the figures asked for; returns 0, or 2 for a figure that is not known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "figure",
        nargs="*",
        help="figures to measure; none: all of them but `soak`, which takes half an hour",
    )
    parser.add_argument(
        "--runs",
        type=int,
        help="rounds; the result is their median (default: the figure's own number)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes and one round, to see that it runs; says nothing of speed",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="keep the results in benchmarks/results, to be committed",
    )
    parser.add_argument(
        "--dialogues",
        type=Path,
        metavar="FILE",
        help="LoCoMo's dialogues (a zip archive or JSON), for figure `recall` to ask about as well",
    )
    parser.add_argument("--list", action="store_true", help="list the figures and their goals")
    given = parser.parse_args(argv)
    if given.runs is not None and given.runs < 1:
        parser.error("--runs must be 1 or more")
    if given.save and given.quick:
        parser.error("--save keeps no quick results: they say nothing of speed")
    if given.dialogues is not None and not given.dialogues.is_file():
        parser.error(f"--dialogues {given.dialogues}: there is no such file")
    known = figures()
    if given.list:
        for name, figure in known.items():
            print(f"{name:20} {figure.goal}")
        return 0
    unknown = [name for name in given.figure if name not in known]
    if unknown:
        parser.error(f"figure {unknown[0]} is not known: the figures are {', '.join(known)}")
    for name in given.figure or [
        name for name, figure in known.items() if not getattr(figure, "only_named", False)
    ]:
        say(f"== {name}: goal {known[name].goal}")
        result = measure(known[name], Args(given.runs, given.quick, given.dialogues))
        print(result.line(), flush=True)
        if not given.quick:
            for line in compare.moved(result, compare.load(name)):
                say(line)
        if given.save:
            say(f"saved in benchmarks/results/{compare.save(result).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
