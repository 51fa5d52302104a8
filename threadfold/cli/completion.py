"""``completion bash|zsh|fish``: what a shell completes the command by."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_THREADFOLD_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell: `source <(threadfold
    completion bash)`.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "threadfold", VARIABLE).source())
