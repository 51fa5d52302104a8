"""Settings that name the models of the long-term memory."""

from __future__ import annotations

from typing import Any

import pytest

from projections.errors import InvalidSettings
from streams.settings.settings import Settings

CHEAP = {"cheap": {"base_url": "http://127.0.0.1:1/v1", "model": "small-1"}}


@pytest.mark.parametrize("name", ["memory_model", "memory_planner", "memory_hyde"])
def test_a_misspelt_endpoint_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"'{name}' is 'chaep': it must be one of cheap, or"):
        Settings.load(env={}, summarizers=CHEAP, **{name: "chaep"})
    with pytest.raises(
        InvalidSettings, match=r"there is no endpoint \[summarizers.NAME\]: add one"
    ):
        Settings.load(env={f"THREADFOLD_{name.upper()}": "cheap"})
    assert getattr(Settings.load(env={}, summarizers=CHEAP, **{name: "cheap"}), name) == "cheap"


def test_no_model_is_asked_by_default() -> None:
    settings = Settings.load(env={}, summarizers=CHEAP)
    named = (settings.memory_model, settings.memory_planner, settings.memory_hyde)
    assert named == ("", "", "") and settings.memory_model_seconds == 2.0


@pytest.mark.parametrize("seconds", [0, 0.5, 61])
def test_the_time_that_a_search_waits_has_bounds(seconds: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"'memory_model_seconds' is .* 1 to 60"):
        Settings.load(env={}, memory_model_seconds=seconds)


@pytest.mark.parametrize(
    "word",
    ["none", "OFF", "memory", "sqlite", "lancedb", "lancedb:", "Redis", "reddis", "redis://h/0"],
)
def test_a_word_that_is_no_path_and_looks_like_a_kind_of_store_is_refused(word: str) -> None:
    with pytest.raises(InvalidSettings, match=r"'memory_store' is .* must be redis.* give \./"):
        Settings.load(env={"THREADFOLD_MEMORY_STORE": word})


@pytest.mark.parametrize(
    "store",
    ["", "redis", "./redis", "./none", "/data/memory", "memories", "lancedb:memory", "store"],
)
def test_a_folder_of_any_name_may_be_given_as_a_path(store: str) -> None:
    assert Settings.load(env={"THREADFOLD_MEMORY_STORE": store}).memory_store == store
