"""What the settings may say about summarisers, and how a mistake is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from projections.errors import InvalidPolicy, InvalidSettings
from streams.compaction.summarizers.registry import Summarizers
from streams.settings.endpoints import EndpointSettings
from streams.settings.settings import Settings
from threadfold.cli.configuration import write_config

GOOD = {"base_url": "https://models.example.com/v1", "model": "small-1"}


def load(**options: Any) -> Settings:
    return Settings.load(env={}, summarizers={"cheap": GOOD | options})


def test_endpoints_are_tables_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'summary_attempts = 2\n[summarizers.cheap]\nbase_url = "http://h:1/v1/"\nmodel = "m"\nextra'
        " = { temperature = 0 }\n"
    )
    settings = Settings.load(env={}, config=path)
    assert settings.summarizers == {
        "cheap": EndpointSettings(base_url="http://h:1/v1/", model="m", extra={"temperature": 0})
    }
    assert (
        settings.summarizers["cheap"].url == "http://h:1/v1/chat/completions"
        and settings.summary_attempts == 2
    )


def test_the_environment_has_them_as_json_and_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[summarizers.old]\nbase_url = "http://h:1"\nmodel = "m"\n')
    env = {"THREADFOLD_SUMMARIZERS": json.dumps({"cheap": GOOD, "deep": GOOD | {"timeout": "40"}})}
    settings = Settings.load(env=env, config=path)
    assert (
        set(settings.summarizers) == {"cheap", "deep"}
        and settings.summarizers["deep"].timeout == 40.0
    )


def test_what_up_writes_is_read_again_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "threadfold.toml"
    for settings in (
        load(key="k", input_price=0.5, extra={"stop": ["a", {"b": 1}], "temperature": 0}),
        Settings(kafka="h:1"),
    ):
        write_config(path, settings)
        assert Settings.load(env={}, config=path) == settings
    assert "summarizers" not in path.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"modle": "x"},
            r"summarizer 'cheap': key 'modle' is unknown: the keys are base_url, model, key",
        ),
        ({"model": 7}, "summarizer 'cheap': field model: expected text, got a whole number"),
        ({"model": " "}, "model must be"),
        ({"base_url": "models.example.com"}, "must be an address like https"),
        ({"base_url": "ftp://h/v1"}, "must be an address"),
        ({"base_url": "http://h:port/v1"}, "not an address"),
        ({"base_url": "http://h/v1?key=1"}, "query"),
        ({"key": "a", "key_env": "B"}, "both key and key_env"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"input_price": -1}, "input_price is -1"),
        ({"max_response_bytes": 10}, "max_response_bytes is 10"),
        ({"max_tokens_field": "tokens"}, "max_tokens_field"),
        ({"extra": {"messages": []}}, "extra may not set 'messages'"),
    ],
)
def test_a_mistake_is_named_with_the_endpoint_and_the_key(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSettings, match=said) as error:
        load(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "https://user:hunter2@h/v1"},
        {"key_env": "sk-hunter2"},
        {"key": "hunter2\n"},
        {"key": "hunter2", "key_env": "X"},
    ],
)
def test_a_mistake_with_a_key_does_not_show_it(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as error:
        load(**options)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "must be a table"),
        ('{"a b": {}}', "a name is"),
        ('{"extractive": {}}', "is built in"),
        ('{"cheap": 5}', "summarizer 'cheap'"),
        ('{"cheap": {"model": "m"}}', "base_url"),
    ],
)
def test_a_value_that_is_no_table_of_endpoints_is_refused(value: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        Settings.load(env={"THREADFOLD_SUMMARIZERS": value})


@pytest.mark.parametrize(
    "name",
    ["summary_attempts", "summary_output_tokens", "summary_time_cap", "summary_breaker_failures"],
)
def test_a_cap_that_leaves_no_room_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"'{name}' is 0"):
        Settings.load(env={f"THREADFOLD_{name.upper()}": "0"})


def test_a_key_is_looked_up_when_a_worker_starts_and_its_absence_is_said() -> None:
    settings = load(key_env="MODELS_KEY")
    with pytest.raises(
        InvalidSettings,
        match="'cheap': the environment variable MODELS_KEY that should hold its key is not set",
    ):
        Summarizers(settings, {})
    with pytest.raises(InvalidSettings, match="spaces") as error:
        Summarizers(settings, {"MODELS_KEY": "hunter2 x"})
    assert "hunter2" not in str(error.value)
    assert settings.summarizers["cheap"].find_key("cheap", {"MODELS_KEY": "hunter2\n"}) == "hunter2"


def test_the_known_names_are_those_configured_and_the_two_that_always_hold() -> None:
    assert Settings().summarizer_names == {"extractive", "cheap"}
    settings = Settings.load(env={}, summarizers={"deep": GOOD})
    assert settings.summarizer_names == {"extractive", "cheap", "deep"}
    summarizers = Summarizers(settings, {})
    assert summarizers.get("cheap").name == "extractive" and summarizers.get("deep").name == "deep"
    with pytest.raises(InvalidPolicy, match=r"'gpt'.*cheap, deep, extractive"):
        summarizers.get("gpt")
