"""The command line without any stack: usage, services that are away, faults and signals; always one line
and the right exit code.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import click
import pytest

from tests.support.commands import COMMAND, clean_env, error_line
from threadfold.cli.generations import run_interruptibly, with_estimate
from threadfold.cli.main import COMMANDS, main
from threadfold.cli.progress import Meter


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"threadfold {name}" in out
    alone = ("schemas", "completion")  # which need no deployment
    assert "--data" in out or "COMMAND" in out or name in alone


def test_help_loads_no_client_library() -> None:
    heavy = ["aiokafka", "faust", "redis", "rich", "numpy", "starlette", "msgspec"]
    program = (
        f"import sys; from threadfold.cli import main; main(['--help']); print([m for m in {heavy}"
        " if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"
    assert all(name in run.stdout for name in COMMANDS)
    assert "./threadfold-data" in run.stdout and "130 interrupted" in " ".join(run.stdout.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["frobnicate"], "no such command 'frobnicate' (see `threadfold --help`)"),
        (["append", "t"], "missing argument 'CONVERSATION' (see `threadfold append --help`)"),
        (["play", "f", "--tenant", "t", "--rate", "0"], "'--rate'"),
        (["play", "f"], "missing option '--tenant'"),
        (["tenant", "list"], "no such command 'tenant'. Did you mean tenants? (see"),
        (["tenants", "lst"], "no such command 'lst'. Did you mean list? (see"),
        (["up", "--prot", "1"], "no such option: --prot. Did you mean --port? (see"),
        (["erase", "t"], "give a conversation, or --user U (see"),
        (["erase", "t", "c", "--user", "u"], "give a conversation, or --user U, not both"),
        (["tenants", "add", "t", "--expires", "90"], "or a number of days, like 90d"),
        (["context", "t", "c", "--format", "xml"], "'xml' is not one of"),
        (["history", "t", "c", "--limit", "0"], "'--limit'"),
        (["verify", "--sample", "3", "--all"], "--sample and --all exclude each other"),
        (["tenants", "add", "t", "--scopes", "read,fly"], "fly is not a scope"),
        (["generations", "drop", "zero"], "'zero' is not a valid integer"),
        (["tenants", "add", "t", "--expires", "soon"], "RFC 3339"),
        (["tenants", "add", "t", "--expires", "2001-01-01T00:00:00Z"], "this time is in the past"),
        (["tenants", "add", "a b"], "tenant 'a b' is not a name"),
        (["append", "t", "c/d"], "conversation 'c/d' is not a name"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    line = error_line(capsys)
    assert line.startswith("threadfold: ")
    assert message in line


@pytest.mark.parametrize(
    "args",
    [
        ["doctor"],
        ["worker"],
        ["gateway"],
        ["summaries"],
        ["verify"],
        ["tenants", "list"],
        ["topics", "check"],
    ],
)
def test_a_command_without_a_stack_says_how_to_name_one(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    assert "THREADFOLD_KAFKA" in error_line(capsys)


def test_a_folder_that_is_no_stack_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--data", str(tmp_path)]) == 2
    assert f"{tmp_path} has no threadfold.toml" in error_line(capsys)


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    "args",
    [["topics", "create"], ["topics", "check"], ["append", "t", "c", "FILE"], ["play", "FILE", "--tenant", "t"], ["context", "t", "c"],
     ["history", "t", "c"], ["summaries"], ["rebuild"], ["generations", "list"], ["generations", "drop", "1"], ["verify"],
     ["tenants", "add", "t"], ["tenants", "list"], ["tenants", "revoke", "t"], ["worker"]],
)  # fmt: skip
@pytest.mark.timeout(30)
def test_kafka_away_is_one_line_within_seconds(
    args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text(
        '{"conversation": "c", "messages": []}\n'
        if args[0] == "play"
        else '{"role": "user", "content": "hi"}\n'
    )
    assert main([str(file) if arg == "FILE" else arg for arg in args]) == 2
    line = error_line(capsys)
    assert "Kafka at 127.0.0.1:" in line
    assert "does not answer" in line


def test_a_loss_is_accepted_only_where_something_is_switched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["rebuild", "--accept-loss"]) == 2
    assert "--accept-loss is of a switch: give --switch, too" in error_line(capsys)


@pytest.mark.usefixtures("away")
def test_doctor_goes_on_where_a_service_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok    versions: Python 3.")
    assert any(line.startswith("wrong redis: ") and "does not answer" in line for line in lines)
    assert any(line.startswith("wrong kafka: ") and "does not answer" in line for line in lines)


def test_a_fault_of_our_own_is_one_line_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the fault\nand more of it")

    monkeypatch.setattr("threadfold.cli.services.load_settings", fail)
    assert main(["worker"]) == 2
    assert (
        error_line(capsys)
        == "threadfold: unexpected error: RuntimeError: the fault (THREADFOLD_DEBUG=1 shows where)"
    )
    monkeypatch.setenv("THREADFOLD_DEBUG", "1")
    assert main(["worker"]) == 2
    assert "Traceback" in capsys.readouterr().err


def _fill_sqlite() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count = 2")
        database.execute("CREATE TABLE texts (text)")
        database.execute("INSERT INTO texts VALUES (zeroblob(100000))")


def _fill_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "memories.sqlite")


@pytest.mark.parametrize(
    ("fill", "disk"), [(_fill_sqlite, "disk"), (_fill_disk, "disk of memories.sqlite")]
)
def test_a_full_disk_is_named(
    fill: Callable[[], None],
    disk: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("threadfold.cli.services.load_settings", lambda *_, **__: fill())
    assert main(["worker"]) == 2
    line = f"threadfold: the {disk} is full: free some space, then try again"
    assert error_line(capsys) == line


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("kind", ["", "lancedb:"])
def test_a_gateway_whose_memory_store_cannot_be_does_not_start(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("streams.memory.stores.find_spec", lambda _: None)
    folder = tmp_path / ("m" if kind else "file")
    monkeypatch.setenv("THREADFOLD_MEMORY_STORE", f"{kind}{folder}")
    assert main(["gateway", "--port", "0"]) == 2
    line = error_line(capsys)
    assert line.startswith("threadfold: setting 'memory_store'")
    if kind:
        assert "LanceDB, which is not installed" in line
    else:
        assert f"{folder} cannot be made: a file is in the place of {folder}" in line


def test_nothing_is_downloaded_for_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numpy", reason="the extra embeddings is not installed")
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "models"
    assert main(["embeddings", "prepare", "--folder", str(folder)]) == 2
    assert f"{folder} cannot be written: not a directory" in error_line(capsys)


def test_ctrl_c_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadfold.cli.services.load_settings", interrupt)
    assert main(["worker"]) == 130
    assert not capsys.readouterr().err.strip()


def test_up_with_its_port_taken_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = subprocess.run(
            [*COMMAND, "up", "--data", str(tmp_path / "d"), "--port", str(port)],
            env=clean_env(),
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert run.returncode == 2
    assert run.stderr.startswith(f"threadfold: the gateway cannot listen on port {port} of")
    assert run.stderr.count("\n") == 1
    assert [each.name for each in (tmp_path / "d").iterdir()] == ["threadfold.lock"]


@pytest.mark.parametrize(
    ("closed", "args", "code"),
    [(">&-", ["schemas", "openapi"], 0), (">&-", ["context", "t", "c/d"], 2), ("2>&-", ["schemas", "openapi"], 0)],
)  # fmt: skip
def test_an_output_that_is_closed_is_no_error(closed: str, args: list[str], code: int) -> None:
    run = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *args],
        env=clean_env(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.returncode == code
    assert "unexpected" not in run.stderr and "Error" not in run.stderr
    assert run.stderr.count("\n") == (code > 0)


def test_a_rebuild_ends_at_a_signal_though_a_client_swallows_the_cancellation() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        with_estimate(Meter("rebuild"))(1, 2)
        raise AssertionError("it went on")

    with pytest.raises(click.Abort):
        run_interruptibly(work())


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_seconds_that_never_end_are_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", "drop", "0-0", "--wait", value]) == 2
    assert f"{value} is not a finite number" in error_line(capsys)


def test_an_interruption_while_a_command_is_imported_is_no_error_of_the_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def import_module(name: str) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError(f"{name} was imported in part") from None

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert main(["doctor"]) == 130
    assert not capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    "command",
    [
        *(["memories", "save", "acme", "x", option, ""] for option in ("--user", "--channel", "--topic")),
        ["memories", "list", "acme", "--user", ""],
        ["mcp", "--user", ""],
    ],
)  # fmt: skip
def test_an_empty_value_does_not_select_all(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert "expected 1 or more characters" in capsys.readouterr().err
