"""What commands are configured with: where it comes from, and which setting is named if nothing can run
with it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from projections.errors import InvalidSettings
from streams.settings.callables import load_callables
from streams.settings.settings import Settings
from tests.support.commands import error_line
from threadfold.cli import common
from threadfold.cli.common import load_settings
from threadfold.cli.configuration import write_config
from threadfold.cli.main import main


def test_an_unknown_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "threadfold.toml").write_text('kafka = "127.0.0.1:1"\nkafak = 1\n')
    assert main(["doctor", "--data", str(tmp_path)]) == 2
    assert "setting 'kafak' is unknown" in error_line(capsys)


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
