"""Help and completion: commands are shown with whole sentences, and shells complete them."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import BashComplete

from threadfold.cli import main
from threadfold.cli.completion import VARIABLE
from threadfold.cli.main import COMMANDS, app
from threadfold.cli.whole_help import Group


def groups() -> list[str]:
    context = click.Context(app)
    made = {name: app.get_command(context, name) for name in COMMANDS}
    return [name for name, found in made.items() if isinstance(found, click.Group)]


@pytest.mark.parametrize("name", groups())
def test_no_groups_help_is_cut_off(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = app.get_command(click.Context(app), name)
    assert isinstance(group, Group)
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out.partition("Commands:")[2]
    assert "..." not in shown
    assert set(group.commands) <= set(shown.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_what_completes_commands(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert f"_THREADFOLD_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_commands_and_options_are_completed() -> None:
    completes = BashComplete(app, {}, "threadfold", VARIABLE)

    def completed(*words: str, begun: str = "") -> set[str]:
        return {item.value for item in completes.get_completions(list(words), begun)}

    assert completed(begun="t") == {name for name in COMMANDS if name.startswith("t")}
    assert {"add", "list"} <= completed("tenants")
    assert "--parked" in completed("conversations", begun="--p")
