"""The ``threadfold`` command: its groups, loaded lazily, and how errors become one line and an exit
code.

Only click is imported here, so ``threadfold --help`` answers in a tenth of a second and a command
pays for its own imports alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

DONE, FOUND_WRONG, FAILED, INTERRUPTED = 0, 1, 2, 130
"""The exit codes: done; something was found wrong; bad usage, an unreachable service or an error;
Ctrl-C.
"""

COMMANDS = {
    "up": (
        "threadfold.cli.up:up",
        "Start everything here: Kafka, Redis, topics, workers and the gateway.",
    ),
    "worker": ("threadfold.cli.services:worker", "Run one worker: projector and compactor."),
    "gateway": ("threadfold.cli.services:gateway", "Run the HTTP gateway."),
    "topics": ("threadfold.cli.topics:topics", "Create or check the topics."),
    "doctor": (
        "threadfold.cli.doctor:doctor",
        "Check brokers, Redis, topics and lag, and say what to do.",
    ),
    "append": (
        "threadfold.cli.append:append",
        "Append events or messages, JSON lines; prints their positions.",
    ),
    "play": ("threadfold.cli.play:play", "Play conversation files and wait until all is applied."),
    "context": ("threadfold.cli.read:context", "Print a conversation's rendered window."),
    "history": (
        "threadfold.cli.read:history",
        "Print a page of a conversation backwards from the log.",
    ),
    "renders": (
        "threadfold.cli.renders:renders",
        "Show what a model was sent, rendered again from the log.",
    ),
    "summaries": ("threadfold.cli.summaries:summaries", "Print the summaries topic as JSON lines."),
    "rebuild": (
        "threadfold.cli.generations:rebuild",
        "Build a new generation of all windows beside the live one.",
    ),
    "generations": (
        "threadfold.cli.generations:generations",
        "List, switch to or drop generations.",
    ),
    "verify": (
        "threadfold.cli.verify:verify",
        "Fold windows from the log and compare them with Redis.",
    ),
    "dead-letters": (
        "threadfold.cli.dead_letters:dead_letters",
        "List, inspect, retry and drop what could not be applied.",
    ),
    "projection": (
        "threadfold.cli.projection:projection",
        "Run, rebuild, verify, list or drop your own projections.",
    ),
    "schemas": (
        "threadfold.cli.schemas:schemas",
        "Print the JSON Schemas of the events and the AsyncAPI document of the topics.",
    ),
    "erase": (
        "threadfold.cli.erase:erase",
        "Erase a conversation, or all of a user's, and print the receipts.",
    ),
    "keys": ("threadfold.cli.keys:keys", "Make master keys, wrap data keys anew."),
    "tenants": ("threadfold.cli.tenants:tenants", "Add and list tenants, revoke their keys."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; the list of commands needs no
    import at all.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except Exception as error:
            if not isinstance(error, BrokenPipeError) and type(error).__name__ != "OutputClosed":
                raise
            # The reader took what it wanted (`| head`). What is still buffered goes nowhere, so
            # that Python does not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        return result


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="threadfold", message="%(prog)s %(version)s")
def app() -> None:
    """A bounded window over an unbounded conversation log: Kafka in, Redis out, summaries by
    subscription.

    Commands reach a stack through --data DIR (a folder of `threadfold up`), THREADFOLD_CONFIG (a
    TOML file) or THREADFOLD_KAFKA and THREADFOLD_REDIS. Exit codes: 0 done, 1 found wrong, 2 bad
    usage or unreachable service.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv`` by default) and return its exit code; errors are one line on
    stderr.
    """
    try:
        result = app.main(args, prog_name="threadfold", standalone_mode=False)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no name of it in click 8.1
            error.show()
            return FAILED
        path = error.ctx.command_path if error.ctx else "threadfold"
        click.echo(
            f"threadfold: {_sentence(error.format_message())} (see `{path} --help`)", err=True
        )
        return FAILED
    except click.ClickException as error:
        click.echo(f"threadfold: {_sentence(error.format_message())}", err=True)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where every error ends, as a line instead of a traceback
        return _explain(error)
    return result if isinstance(result, int) else DONE


def _sentence(text: str) -> str:
    """click's message on one line, begun as ours are."""
    joined = " ".join(text.split()).removesuffix(".")
    return joined[:1].lower() + joined[1:]


def _explain(error: BaseException) -> int:
    """Print an error as one line; returns the exit code it stands for."""
    from projections.errors import ThreadfoldError

    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(ThreadfoldError)
        error = (known or error).exceptions[0]
    if os.environ.get("THREADFOLD_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ThreadfoldError):
        click.echo(f"threadfold: {_one_line(str(error))}", err=True)
        return error.exit_code
    text = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    click.echo(
        f"threadfold: unexpected error: {_one_line(reason)} (THREADFOLD_DEBUG=1 shows where)",
        err=True,
    )
    return FAILED


def _one_line(text: str) -> str:
    """An error's text on one line, with nothing that a terminal would obey: it may quote
    another's.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
