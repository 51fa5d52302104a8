"""The command line without any stack: usage, bad input, services that are away; always one line and
the right exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import click
import pytest

from projections.errors import InvalidSettings
from streams.settings.settings import Settings
from tests.support.commands import COMMAND, clean_env
from threadfold.cli import common
from threadfold.cli.configuration import write_config
from threadfold.cli.main import COMMANDS, main
from threadfold.cli.play import Source, copied
from threadfold.embedded.ports import free_ports


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.__struct_fields__:
        monkeypatch.delenv(f"THREADFOLD_{name.upper()}", raising=False)
    monkeypatch.delenv("THREADFOLD_CONFIG", raising=False)
    monkeypatch.delenv("THREADFOLD_DEBUG", raising=False)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka and a Redis at ports where nothing listens."""
    kafka, redis = free_ports(2)
    monkeypatch.setenv("THREADFOLD_KAFKA", f"127.0.0.1:{kafka}")
    monkeypatch.setenv("THREADFOLD_REDIS", f"redis://127.0.0.1:{redis}/0")


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
        (["erase", "t", "c", "--user", "u"], "give a conversation, or --user U, not both"),
        (["tenants", "add", "t", "--expires", "90"], "or a number of days, like 90d"),
        (["context", "t", "c", "--format", "xml"], "'xml' is not one of"),
        (["history", "t", "c", "--limit", "0"], "'--limit'"),
        (["verify", "--sample", "3", "--all"], "--sample and --all exclude each other"),
        (["tenants", "add", "t", "--scopes", "read,fly"], "fly is not a scope"),
        (["generations", "drop", "zero"], "'zero' is not a valid integer"),
        (["tenants", "add", "t", "--expires", "soon"], "RFC 3339"),
        (["tenants", "add", "t", "--expires", "2001-01-01T00:00:00Z"], "passed already"),
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


def test_an_unknown_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "threadfold.toml").write_text('kafka = "127.0.0.1:1"\nkafak = 1\n')
    assert main(["doctor", "--data", str(tmp_path)]) == 2
    assert "setting 'kafak' is unknown" in error_line(capsys)


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


@pytest.mark.usefixtures("away")
def test_doctor_goes_on_where_a_service_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok    versions: Python 3.")
    assert any(line.startswith("wrong redis: ") and "does not answer" in line for line in lines)
    assert any(line.startswith("wrong kafka: ") and "does not answer" in line for line in lines)


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"type":"message",', "line 3: it is not JSON"),
        (b'{"role": "user", "content": "\xff"}', "line 3: it is not UTF-8 (byte 30)"),
        (b'"hello"', "line 3: expected a JSON object"),
        (b'{"role": "robot"}', "line 3: field role: 'robot' is not one of"),
        (b'{"role": "assistant", "tool_calls": 5}', "line 3: field tool_calls: expected a list"),
    ],
)
def test_append_names_the_line_that_is_wrong(
    line: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b'{"role": "user", "content": "hi"}\n\n' + line + b"\n")
    assert main(["append", "t", "c", str(file)]) == 2
    assert message in error_line(capsys)


@pytest.mark.usefixtures("away")
def test_append_of_nothing_says_so_and_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("\n  \n")
    assert main(["append", "t", "c", str(tmp_path / "empty")]) == 0
    assert error_line(capsys) == "nothing to append: the input is empty"


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "line 1: it is not JSON"),
        ('{"messages": []}', "line 1: field conversation: missing"),
        ('{"conversation": "a b", "messages": []}', "line 1: conversation 'a b' is not a name"),
        ('{"conversation": "c", "messages": {}}', "line 1: field messages: expected a list"),
        (
            (
                '{"conversation": "c", "messages": [{"role": "user", "content": "x"}, {"role":'
                ' "user", "content": 7}]}'
            ),
            "message 2: field content",
        ),
        (
            '{"conversation": "c", "messages": []}\n{"conversation": "c", "messages": []}',
            "line 2: conversation c occurs twice",
        ),
        (
            '{"conversation": "c", "messages": []}\n{"conversation": "c.2", "messages": []}',
            "conversation c: its copy c.2 is a conversation of the files",
        ),
    ],
)
def test_play_checks_its_files_before_anything(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text(text)
    assert main(["play", str(tmp_path / "file"), "--tenant", "t", "--copies", "2"]) == 2
    assert message in error_line(capsys)


def test_a_missing_file_is_one_line(
    away: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(tmp_path / "none"), "--tenant", "t"]) == 2
    assert (
        error_line(capsys)
        == f"threadfold: {tmp_path / 'none'} cannot be read: no such file or directory"
    )
    assert main(["rebuild", "--policy", str(tmp_path / "none")]) == 2
    assert "policy file" in error_line(capsys)


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


def test_ctrl_c_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadfold.cli.services.load_settings", interrupt)
    assert main(["worker"]) == 130
    assert not capsys.readouterr().err.strip()


def test_the_written_configuration_is_read_back_whole_and_by_its_owner_only(tmp_path: Path) -> None:
    settings = Settings(
        kafka="127.0.0.1:1",
        redis='redis://:pass"\\wörd\x7f@h/0',
        topic_prefix="other",
        replication=1,
        append_timeout=2.5,
    )
    path = tmp_path / common.CONFIG_FILE
    write_config(path, settings)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Settings.load({}, path) == settings
    assert {
        "kafka",
        "redis",
        "partitions",
        "replication",
        "min_isr",
        "gateway_url",
    } <= tomllib.loads(path.read_text()).keys()
    assert sorted(each.name for each in tmp_path.iterdir()) == [common.CONFIG_FILE]


def test_the_environment_wins_over_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(
        tmp_path / common.CONFIG_FILE, Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:2")
    )
    monkeypatch.setenv("THREADFOLD_KAFKA", "127.0.0.1:9")
    settings = common.load_settings(tmp_path)
    assert (settings.kafka, settings.redis) == ("127.0.0.1:9", "redis://127.0.0.1:2")


def test_played_ids_follow_from_tenant_conversation_copy_and_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        '{"conversation": "c", "messages": [{"role": "user", "content": "x", "id": "own"}, {"role":'
        ' "user", "content": "x"}]}'
    )

    def ids(tenant: str, copy: int) -> list[str]:
        (conversation,) = Source((tmp_path / "f",), tenant, 1, 1 << 20).read()
        return [record.id for record in copied(conversation, copy).records]

    assert ids("t", 1) == ids("t", 1)
    made = {*ids("t", 1), *ids("t", 2), *ids("u", 1), *ids("u", 2)}
    assert len(made) == 8
    assert "own" not in made


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
    ("kafka", "redis", "message"),
    [
        (
            "nonsense",
            "redis://127.0.0.1:1/0",
            "THREADFOLD_KAFKA has 'nonsense': it must be host:port",
        ),
        ("127.0.0.1:1", "foo", "THREADFOLD_REDIS is 'foo': it must be a URL"),
        ("127.0.0.1:1", "user:secret@foo", "THREADFOLD_REDIS is 'foo'"),
    ],
)
def test_an_address_that_cannot_be_one_is_named_by_its_setting(
    kafka: str, redis: str, message: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings(kafka=kafka, redis=redis).require()
    assert message in str(caught.value) and "secret" not in str(caught.value)


def test_without_any_configuration_the_folder_that_up_takes_by_default_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threadfold.cli.common import load_settings

    for name in ("CONFIG", "KAFKA", "REDIS"):
        monkeypatch.delenv(f"THREADFOLD_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    wanted = "no address of Kafka is configured: .* `threadfold up` starts one"
    with pytest.raises(InvalidSettings, match=wanted):
        load_settings(None)
    (tmp_path / "threadfold-data").mkdir()
    (tmp_path / "threadfold-data" / "threadfold.toml").write_text(
        'kafka = "127.0.0.1:7"\nredis = "redis://127.0.0.1:8/0"\n'
    )
    assert load_settings(None).kafka == "127.0.0.1:7"
    monkeypatch.setenv("THREADFOLD_KAFKA", "127.0.0.1:9")
    with pytest.raises(InvalidSettings, match="no address of Redis is configured"):
        load_settings(None)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "log_level",
            "loud",
            (
                "setting 'log_level' is 'loud': it must be one of debug, info, warning, error,"
                " critical"
            ),
        ),
        ("append_timeout", "0", "setting 'append_timeout' is 0.0: it must be 0.1 to 3600"),
        ("append_timeout", "nan", "setting 'append_timeout' is nan"),
        ("session_timeout", "-1", "setting 'session_timeout' is -1.0"),
        ("compactor_processes", "-1", "setting 'compactor_processes' is -1"),
        ("batch_events", "0", "setting 'batch_events' is 0: it must be 1 to"),
        ("partitions", "-3", "setting 'partitions' is -3"),
        ("gateway_port", "99999", "setting 'gateway_port' is 99999: it must be 0 to 65535"),
    ],
)
def test_a_setting_that_nothing_can_run_with_is_named(
    setting: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.load(env={f"THREADFOLD_{setting.upper()}": value})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('boom')", "def (", "import no_such_module_at_all"]
)
def test_a_callable_whose_module_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from streams.settings.callables import load_callables

    (tmp_path / "its_module_fails.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InvalidSettings, match=r"brief \(its_module_fails:f\) cannot be imported: \w+Error"
    ):
        load_callables({"brief": "its_module_fails:f"})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import os\nos.nothing_there\n",
            "importing mine_a failed: AttributeError: module 'os' has no attribute 'nothing_there'",
        ),
        ("raise SystemExit(5)\n", "importing mine_a failed: SystemExit: 5"),
        (
            "class P:\n    def __init__(self, x): ...\n    def apply(self): ...\n",
            "calling P() failed: TypeError",
        ),
        (
            "raise ValueError('first\\nsecond \\x1b[31mred')\n",
            r"ValueError: first second \x1b[31mred",
        ),
    ],
)
def test_a_module_that_gives_no_projection_is_one_line(
    source: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine_a.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("THREADFOLD_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("THREADFOLD_REDIS", "redis://127.0.0.1:1/0")
    monkeypatch.delitem(sys.modules, "mine_a", raising=False)
    assert main(["projection", "run", "mine_a:P"]) == 2
    assert reason in error_line(capsys)
    sys.modules.pop("mine_a", None)


@pytest.mark.usefixtures("away")
def test_a_policy_file_that_does_not_hold_is_named_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('working_budget = "many"\n')
    assert main(["rebuild", "--policy", str(path)]) == 2
    assert error_line(capsys) == (
        f"threadfold: policy file {path}: policy key working_budget: expected a whole number, got"
        " text"
    )


def test_a_policy_that_is_nested_without_end_is_one_line(
    tmp_path: Path, away: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    assert main(["rebuild", "--policy", str(path)]) == 2
    assert error_line(capsys) == f"threadfold: policy file {path} is nested too deeply"


def test_a_rebuild_ends_at_a_signal_though_a_client_swallows_the_cancellation() -> None:
    from threadfold.cli.generations import run_interruptibly, with_estimate
    from threadfold.cli.progress import Meter

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
