"""Peer `langgraph_sqlite`: turns of a LangGraph graph whose state holds the messages, checkpointed
by its SQLite saver.

A turn is one ``invoke``: a user message comes in, a node answers with an assistant message of equal
size, ``add_messages`` appends both, the saver writes its checkpoints to a file. The answer tells
how long the last turns before ``messages`` messages took, and the file's size.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from benchmarks.support.texts import text

LAST = 10


def run(groups: dict[str, list[int]], messages: int, characters: int, folder: Path) -> None:
    """Play turns until the state has ``messages`` messages."""
    rng = random.Random(1)
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: {"messages": [("assistant", text(rng, characters))]})
    graph.add_edge(START, "answer")
    file = folder / "checkpoints.sqlite"
    connection = sqlite3.connect(file, check_same_thread=False)
    app: Any = graph.compile(checkpointer=SqliteSaver(connection))
    config = {"configurable": {"thread_id": "one"}}
    times: list[float] = []
    meter = Meter(groups)
    for _ in range(messages // 2):
        begin = time.perf_counter()
        app.invoke({"messages": [("user", text(rng, characters))]}, config)
        times.append(time.perf_counter() - begin)
    usage = meter.stop()
    connection.close()
    size = sum(path.stat().st_size for path in folder.iterdir())
    turn = median(times[-LAST:])
    answer(
        1 / turn,
        usage=usage,
        turn_ms=round(turn * 1e3, 2),
        first_turn_ms=round(median(times[:LAST]) * 1e3, 2),
        file_mb=round(size / 1e6, 1),
    )


if __name__ == "__main__":
    _, groups, job = read_job()
    with tempfile.TemporaryDirectory(prefix="bench-langgraph-") as folder:
        run(groups, job["messages"], job["characters"], Path(folder))
