"""The synchronous client has every method of the asynchronous one, with its arguments and
documentation.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import threadfold
from threadfold_client import (
    AsyncClient,
    Client,
    ClientClosed,
    PartialWriter,
    SyncTurn,
    SyncWriter,
    Turn,
)

ROOT = Path(__file__).resolve().parents[3]
TYPED = """
from collections.abc import Iterator
from typing import Any, assert_type
from threadfold import Client
from threadfold_client import Appended, Context, StreamEvent, SyncTurn

client = Client("http://localhost", "k")
assert_type(client.append("c", {}, wait="applied", fence=1), Appended)
assert_type(client.context("c", format="rendered"), Context)
assert_type(client.conversations(limit=3), Iterator[dict[str, Any]])
assert_type(next(client.subscribe("c")), StreamEvent)
with client.turn("c", policy="queue") as turn, client.partial("c") as writer:
    assert_type(turn, SyncTurn)
    assert_type(writer.finish(model="m"), Appended)
client.append("c", {}, wiat="applied")
client.context(3)
"""
PAIRS = [
    (Client, AsyncClient, {"over"}),
    (SyncWriter, PartialWriter, set()),
    # Entering and leaving it begin and end it.
    (SyncTurn, Turn, {"begin", "end"}),
]


def methods(of: type) -> dict[str, object]:
    found = inspect.getmembers(of, inspect.isroutine)
    return {name: method for name, method in found if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "asynchronous", "without"), PAIRS)
def test_each_method_has_a_counterpart_of_the_same_signature(
    sync: type, asynchronous: type, without: set[str]
) -> None:
    own, others = methods(sync), methods(asynchronous)
    assert set(others) - set(own) == without
    for name in set(others) - without:
        mine, theirs = own[name], others[name]
        assert (
            inspect.signature(mine).parameters.keys() == inspect.signature(theirs).parameters.keys()
        ), name
        assert inspect.getdoc(mine), name
        if name != "close":
            assert inspect.getdoc(mine) == inspect.getdoc(theirs), name


def test_a_closed_client_refuses_calls_and_closes_twice() -> None:
    client = Client("http://127.0.0.1:9", "k")
    client.close()
    client.close()
    with pytest.raises(ClientClosed, match="the client is closed"):
        client.context("c")


def test_the_full_package_has_the_same_clients_with_direct() -> None:
    assert issubclass(threadfold.Client, Client)
    assert issubclass(threadfold.AsyncClient, AsyncClient)
    assert set(methods(threadfold.Client)) - set(methods(Client)) == {"direct"}
    assert set(methods(threadfold.AsyncClient)) - set(methods(AsyncClient)) == {"direct"}


@pytest.mark.long
def test_type_checkers_know_the_arguments_and_results_of_its_methods(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    wrong = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(wrong) == 2, done.stdout + done.stderr
    assert 'Unexpected keyword argument "wiat"' in wrong[0]
    assert 'Argument 1 has incompatible type "int"; expected "str"' in wrong[1]
