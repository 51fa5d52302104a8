"""The ``threadfold`` command: its table of commands, and errors as one line and an exit code.

This module imports only click, so ``threadfold --help`` answers in a tenth of a second. A command
loads only its own imports.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from threadfold.cli.interrupts import interrupts_wait

DONE, FOUND_WRONG, FAILED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; a check failed; bad usage, unreachable service or error; Ctrl-C."""

COMMANDS = {
    "up": ("up", "Start everything on this machine: Kafka, Redis, topics, workers, gateway."),
    "worker": ("services", "Run one worker: projector and compactor."),
    "gateway": ("services", "Run the HTTP gateway."),
    "topics": ("topics", "Create or check the topics, or copy them into more partitions."),
    "maintenance": ("maintenance", "Refuse appends, and accept them again."),
    "top": ("top", "Show live figures of workers and gateways."),
    "doctor": ("doctor", "Check brokers, Redis, topics and lag, and say what to do."),
    "conversations": ("conversations", "List conversations over budget, parked or waiting."),
    "append": ("append", "Append events or messages, JSON lines; print their positions."),
    "play": ("play", "Play conversation files and wait until all events are applied."),
    "context": ("read", "Print a conversation's rendered window."),
    "history": ("read", "Print a page of a conversation from the log, newest first."),
    "renders": ("renders", "Show a recorded model call, rendered again from the log."),
    "summaries": ("summaries", "Print the summaries topic as JSON lines."),
    "memories": ("memories", "Save, find, show and delete records of the long-term memory."),
    "mcp": ("mcp", "Serve the long-term memory to clients of the Model Context Protocol."),
    "embeddings": ("embeddings", "Prepare and show the local embedding model of the memory."),
    "rebuild": ("generations", "Build a new generation of all windows beside the live one."),
    "generations": ("generations", "List generations, switch to one or drop one."),
    "verify": ("verify", "Fold windows from the log and compare them with Redis."),
    "dead-letters": ("dead_letters", "List, inspect, retry or drop events that cannot be applied."),
    "projection": ("projection", "Run, rebuild, verify, list or drop your own projections."),
    "backup": ("backup", "Save and restore the topics from which all else can be rebuilt."),
    "schemas": ("schemas", "Print the events' JSON Schemas and the topics' AsyncAPI document."),
    "erase": ("erase", "Erase one conversation or all of a user, and print the receipts."),
    "keys": ("keys", "Make master keys, and wrap data keys with the current one."),
    "tenants": ("tenants", "Add, list and move tenants, revoke their keys."),
    "config": ("config", "Show the settings in force and their sources."),
    "completion": ("completion", "Print a script that completes commands in a shell."),
}
"""Each command: its module in ``threadfold.cli``, which has it by the same name, and its help."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with interrupts_wait():
            module = importlib.import_module(f"threadfold.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
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
            # The reader has closed stdout (`| head`). Discard what is still buffered, so that
            # Python does not complain at exit.
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

    Commands find a stack by --data DIR (a folder of `threadfold up`), THREADFOLD_CONFIG (a
    TOML file) or THREADFOLD_KAFKA and THREADFOLD_REDIS; without any of these it is the one in
    ./threadfold-data. Exit codes: 0 done, 1 a check failed, 2 bad usage or unreachable service, 130
    interrupted.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line (default: ``sys.argv``); returns its exit code. An error is one line."""
    _discard_closed()
    try:
        result = app.main(args, prog_name="threadfold", standalone_mode=False)
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no name of it in click 8.1
            error.show()
            return FAILED
        path = error.ctx.command_path if error.ctx else "threadfold"
        said = _sentence(error.format_message()) + _near(error)
        click.echo(f"threadfold: {said} (see `{path} --help`)", err=True)
        return FAILED
    except click.ClickException as error:
        click.echo(f"threadfold: {_sentence(error.format_message())}", err=True)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where every error ends, as a line instead of a traceback
        return _explain(error)
    return result if isinstance(result, int) else DONE


def _discard_closed() -> None:
    """Where the caller has closed stdout or stderr (``>&-``), Python has none: what goes there is
    discarded, as after ``| head``.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8", errors="replace"))


def _sentence(text: str) -> str:
    """click's message on one line, in lower case as ours."""
    joined = " ".join(text.split()).removesuffix(".")
    joined = re.sub(r"(?<=\w) Did you mean", ". Did you mean", joined)  # click leaves the stop out
    return joined[:1].lower() + joined[1:]


def _near(error: click.UsageError) -> str:
    """The command that a misspelt one may stand for, as a question."""
    from difflib import get_close_matches

    missed = re.match(r"No such command '([^']*)'", error.message)
    group = error.ctx.command if error.ctx else None
    if missed is None or not isinstance(group, click.Group) or error.ctx is None:
        return ""
    near = get_close_matches(missed[1], group.list_commands(error.ctx), n=1)
    return f". Did you mean {near[0]}?" if near else ""


def _explain(error: BaseException) -> int:
    """Print an error as one line; returns the exit code it stands for."""
    from projections.errors import MemoryUnavailable, ThreadfoldError

    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(ThreadfoldError)
        error = (known or error).exceptions[0]
    if os.environ.get("THREADFOLD_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, MemoryUnavailable):
        click.echo(f"threadfold: the memory store cannot be used: {error.with_folder}", err=True)
        return error.exit_code
    if isinstance(error, ThreadfoldError):
        click.echo(f"threadfold: {_one_line(str(error))}", err=True)
        return error.exit_code
    if _is_full(error):
        name = getattr(error, "filename", None)
        full = f"the disk of {name} is full" if name else "the disk is full"
        click.echo(f"threadfold: {full}: free some space, then try again", err=True)
        return FAILED
    text = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    click.echo(
        f"threadfold: unexpected error: {_one_line(reason)} (THREADFOLD_DEBUG=1 shows where)",
        err=True,
    )
    return FAILED


def _is_full(error: BaseException) -> bool:
    import errno
    import sqlite3

    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _one_line(text: str) -> str:
    """An error's text on one line, control characters escaped: it may quote somebody's input."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
