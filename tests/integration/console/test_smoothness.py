"""An open window that grows fast: what changes in the page is what came, not the whole of it. How
many frames a second that gives depends on the machine, so it is measured apart (docs/console.md).
"""

from __future__ import annotations

import pytest

from tests.support.console_traffic import append
from tests.support.console_world import World

pytestmark = pytest.mark.long
MESSAGES, NEW, BATCH = 1_000, 200, 20
POLICY = {"model_window": 1_000_000, "working_budget": 500_000, "compaction": False}
WATCH = """
    const list = document.querySelector("ol.messages");
    window.seen = {rows: [...list.children], changes: 0};
    const of = (node) => (node.nodeType === 1 ? node : node.parentElement)?.closest("li.message");
    new MutationObserver((all) => {
        for (const one of all)
            if (of(one.target) || [...one.addedNodes, ...one.removedNodes].some(of)) window.seen.changes += 1;
    }).observe(list, {childList: true, subtree: true, characterData: true, attributes: true});
"""
FOUND = """
    const now = document.querySelectorAll("ol.messages > li");
    return {rows: now.length, changes: window.seen.changes,
            kept: window.seen.rows.filter((row, i) => row === now[i]).length};
"""


def messages(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"type": "message", "role": "user", "content": f"Message {n} of many. " * 4}
        for n in range(first, first + count)
    ]


def test_a_window_of_1000_messages_draws_each_new_one_once_and_no_other_again(world: World) -> None:
    append(world.acme, "long-one", [{"type": "conversation.opened", "policy": POLICY}])
    for first in range(0, MESSAGES, 250):
        append(world.acme, "long-one", messages(first, 250))
    browser = world.sign_in()
    world.show("conversations/long-one").shows(f"Message {MESSAGES - 1} of many.", "live")
    browser.run(WATCH)
    for first in range(MESSAGES, MESSAGES + NEW, BATCH):
        append(world.acme, "long-one", messages(first, BATCH))
    browser.shows(f"Message {MESSAGES + NEW - 1} of many.")
    found = browser.run(FOUND)
    assert found == {"rows": MESSAGES + NEW, "changes": NEW, "kept": MESSAGES}
