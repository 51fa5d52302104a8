"""Groups of commands whose help is not cut off."""

from __future__ import annotations

import click


class Group(click.Group):
    """Shows each command with the whole first sentence of its help; click cuts it at 45
    characters.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their sentences."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, made.get_short_help_str(limit=400)) for name, made in found if made]
            )
