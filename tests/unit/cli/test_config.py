"""``config show``: what is in force, where it comes from, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from threadfold.cli import main
from threadfold.cli.config import HIDDEN

SECRETS = ("pass-of-kafka", "pass-of-redis", "x" * 40, "master:c2VjcmV0", "key-of-a-model")
CONFIG = """
kafka = "k:9092"
kafka_user = "ann"
kafka_password = "pass-of-kafka"
redis = "redis://:pass-of-redis@r:6379/0"
master_keys = "master:c2VjcmV0"
partitions = 4
[summarizers.cheap]
base_url = "http://127.0.0.1:9/v1"
model = "m"
key = "key-of-a-model"
"""


@pytest.fixture
def lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, tuple[object, str]]:
    """What is shown, by name: value and source."""
    path, secret = tmp_path / "threadfold.toml", tmp_path / "secret"
    path.write_text(CONFIG)
    secret.write_text("x" * 40)
    monkeypatch.setenv("THREADFOLD_CONFIG", str(path))
    monkeypatch.setenv("THREADFOLD_PARTITIONS", "8")
    monkeypatch.setenv("THREADFOLD_TOKEN_SECRET_FILE", str(secret))
    assert main(["config", "show", "--json"]) == 0
    out = capsys.readouterr().out
    assert not [found for found in SECRETS if found in out]
    shown = (json.loads(line) for line in out.splitlines())
    return {one["name"]: (one["value"], Path(one["source"]).name) for one in shown}


def test_each_value_in_force_names_where_it_comes_from(
    lines: dict[str, tuple[object, str]],
) -> None:
    assert lines["partitions"] == (8, "THREADFOLD_PARTITIONS")
    assert lines["kafka"] == ("k:9092", "threadfold.toml")
    assert lines["group"] == ("threadfold.projector", "default")
    assert lines["redis"] == ("redis://r:6379/0", "threadfold.toml")


def test_secrets_are_shown_as_set(lines: dict[str, tuple[object, str]]) -> None:
    assert lines["kafka_password"] == (HIDDEN, "threadfold.toml")
    assert lines["token_secret"] == (HIDDEN, "THREADFOLD_TOKEN_SECRET_FILE")
    assert lines["master_keys"][0] == HIDDEN
    endpoint = lines["summarizers"][0]
    assert isinstance(endpoint, dict) and endpoint["cheap"]["key"] == HIDDEN


def test_what_no_service_would_start_with_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THREADFOLD_KAFKA_MECHANISM", "GSSAPI")
    assert main(["config", "show"]) == 2
    assert "setting 'kafka_mechanism' is 'GSSAPI'" in capsys.readouterr().err
