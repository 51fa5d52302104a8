"""Adapters without their packages, and what is kept beside a message."""

from __future__ import annotations

import subprocess
import sys

import pytest

from projections.errors import ThreadfoldError
from threadfold.adapters.extras import MissingExtra, needs_asynchronous, require
from threadfold.adapters.kept import keep, kept
from threadfold.client import Client


def test_a_missing_package_is_one_line_that_says_what_to_install() -> None:
    with pytest.raises(
        MissingExtra,
        match=(
            r"^this adapter needs the package some-extra: pip install 'threadfold\[some-extra\]'$"
        ),
    ):
        require("nowhere_to_be_found", "some-extra")
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(MissingExtra, ThreadfoldError)


def test_a_synchronous_client_is_refused_before_anything_is_appended() -> None:
    with (
        Client("http://127.0.0.1:1", "tf_x") as client,
        pytest.raises(TypeError, match="ThreadfoldMemory needs an AsyncClient, not a Client"),
    ):
        needs_asynchronous(client, "ThreadfoldMemory")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("langgraph", "langgraph", "langgraph"),
        ("eventsourcing", "eventsourcing", "eventsourcing"),
    ],
)
def test_an_adapter_without_its_framework_says_so_when_it_is_imported(
    module: str, package: str, extra: str
) -> None:
    code = f"""
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {package!r} else found(name, *rest)
try:
    import threadfold.adapters.{module}
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"threadfold[{extra}]" in done.stdout


def test_adapters_load_no_framework_they_are_not_for() -> None:
    code = """
import sys, threadfold.adapters, threadfold.adapters.openai, threadfold.adapters.anthropic, threadfold.adapters.openai_agents
heavy = {"openai", "anthropic", "agents", "langchain_core", "langgraph"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_is_kept_for_one_framework_is_nothing_to_another() -> None:
    flat = keep({"type": "message", "role": "user", "content": "hi"}, "a", {"n": 1})
    assert flat["content"][0] == {"type": "text", "text": "hi"}
    shown = {
        "type": "message",
        "role": "user",
        "content": flat["content"][:1],
        "reasoning": flat["content"][1:],
    }
    assert kept(shown, "a") == {"n": 1}
    assert kept(shown, "b") is None
    assert kept({**shown, "reasoning": [{"provider": "a", "signature": "{"}]}, "a") is None
