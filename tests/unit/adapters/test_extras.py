"""Adapters without their packages, the requests they make, and what is kept beside a message."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest

from projections.events import types as events
from projections.fold.apply import apply
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event
from threadfold.service.documents import document
from threadfold_client import AsyncClient, Call, Client, ServerSent
from threadfold_client.adapters.extras import MissingExtra, needs_asynchronous, require
from threadfold_client.adapters.kept import in_log_order, keep, kept, shown_messages


def test_a_missing_package_is_one_line_that_says_what_to_install() -> None:
    with pytest.raises(
        MissingExtra,
        match=(
            r"^this adapter needs the package some-extra:"
            r" pip install 'threadfold-client\[some-extra\]'$"
        ),
    ):
        require("nowhere_to_be_found", "some-extra")
    assert issubclass(MissingExtra, ImportError)


def test_a_synchronous_client_is_refused_before_anything_is_appended() -> None:
    with (
        Client("http://127.0.0.1:1", "tf_x") as client,
        pytest.raises(TypeError, match=r"ThreadfoldMemory .* give it an AsyncClient, not a Client"),
    ):
        needs_asynchronous(client, "ThreadfoldMemory")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("threadfold_client.adapters.langchain", "langchain_core", "threadfold-client[langchain]"),
        ("threadfold_client.adapters.langgraph", "langgraph", "threadfold-client[langgraph]"),
        ("threadfold.custom.eventsourcing", "eventsourcing", "threadfold[eventsourcing]"),
        ("threadfold.adapters.eventsourcing", "eventsourcing", "threadfold[eventsourcing]"),
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
    import {module}
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert extra in done.stdout


def test_adapters_load_no_framework_they_are_not_for() -> None:
    code = """
import sys, threadfold_client.adapters, threadfold_client.adapters.openai, threadfold_client.adapters.anthropic, threadfold_client.adapters.openai_agents
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


def test_a_late_system_message_stands_where_it_was_and_an_old_one_in_front() -> None:
    def said(role: str, offset: int | None) -> dict[str, object]:
        position = None if offset is None else f"3-{offset}"
        return {"type": "message", "role": role, "content": "x", "position": position}

    result = {"type": "tool.result", "tool_call_id": "c", "content": "", "position": "3-9"}
    old, middle, late = said("system", 2), said("developer", 8), said("system", 12)
    summary, asked, called = said("assistant", None), said("user", 6), said("assistant", 7)
    shown = [old, middle, late, summary, asked, called, result]
    ordered = [old, summary, asked, called, result, middle, late]
    assert in_log_order(shown) == ordered
    assert in_log_order([old, late]) == [old, late]


class Recorded:
    """A transport that records its calls and answers each with one document."""

    def __init__(self, answer: bytes) -> None:
        self.calls: list[Call] = []
        self.answer = answer

    async def request(self, call: Call) -> bytes:
        self.calls.append(call)
        return self.answer

    def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def test_a_window_is_read_in_one_request_and_nothing_is_matched_by_its_text() -> None:
    window = Window(KEY, PARTITION, RULES)
    for i, note in enumerate(("first", "second")):
        parts = keep({"role": "user", "content": "ok"}, "a", {"note": note})["content"]
        data = msgspec.convert({"role": "user", "content": parts}, events.Message)
        apply(window, i, make_event(data, f"m{i}", 5))
    transport = Recorded(document(window, "rendered"))
    client = AsyncClient.over(transport)
    shown = await shown_messages(client, "c", max_tokens=700, after="3-1")
    assert [kept(flat, "a") for flat in shown] == [{"note": "first"}, {"note": "second"}]
    (call,) = transport.calls
    assert dict(call.query) == {"format": "rendered", "max_tokens": 700, "after": "3-1"}
