"""In a browser: the views of one conversation follow it as it grows, and show nothing of another."""

from __future__ import annotations

import pytest

from tests.support.console_traffic import append, approval, talk
from tests.support.console_world import World, rows

pytestmark = pytest.mark.long
HOLD_STREAMS = """
    const send = window.fetch;
    const held = new Promise((release) => (window.release = release));
    window.fetch = async (request, init) => {
        if (request instanceof Request && request.headers.get("Accept") === "text/event-stream") await held;
        return send(request, init);
    };
"""
"""Let no stream open before it is released."""
MANY = 2_100
"""More events than the page keeps of those that come while a log is open."""


def test_the_bars_line_is_as_far_behind_the_tails_begin_as_the_budget_is_large(
    world: World,
) -> None:
    browser = world.sign_in()
    world.show("conversations/journey").shows("the tail's budget of")

    def right() -> bool:
        """The page follows the window: a summary may come between two looks."""
        shown = world.acme.get("/v1/conversations/journey/window").json()
        lanes = ("system", "summary")
        before = sum(one["tokens"] for one in shown["messages"] if one["lane"] in lanes)
        assert before > 100, "a line that is measured from the bar's begin would pass"
        at = float(browser.run("return document.querySelector('.bar line').getAttribute('x1')"))
        wanted = 1000 * (before + shown["budget"]) / shown["ceiling"]
        return abs(at - wanted) < 0.1

    browser.until(right, "the line is not where the budget ends")


def test_a_log_shows_nothing_of_the_conversation_that_was_open_before(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations/journey/log").shows("Book the first one.")
    browser.button("Show older events")
    browser.shows("This is the first event.", "day 3 of the month")
    world.show("conversations/answered/log").shows("pay-2")
    assert "day 3 of the month" not in browser.text()


def test_older_events_stay_when_the_stream_of_a_log_opens(world: World) -> None:
    browser = world.sign_in()
    browser.run(HOLD_STREAMS)
    world.show("conversations/journey/log").shows("Book the first one.", "not live", "Position")
    browser.button("Show older events")
    browser.shows("This is the first event.", "day 3 of the month")
    append(world.acme, "journey", [{"type": "message", "role": "user", "content": "Lately."}])
    browser.run("window.release()")
    browser.shows("Lately.", "This is the first event.", "day 3 of the month")


def test_a_log_has_what_came_before_its_stream_was_open(world: World) -> None:
    append(world.acme, "slow", [{"type": "message", "role": "user", "content": "At first."}])
    browser = world.sign_in()
    browser.run(HOLD_STREAMS)
    world.show("conversations/slow/log").shows("At first.", "This is the first event.", "not live")
    append(world.acme, "slow", [{"type": "message", "role": "user", "content": "Meanwhile."}])
    browser.run("window.release()")
    browser.shows("Meanwhile.")


def test_a_log_that_grew_too_fast_says_so_and_is_read_again(world: World) -> None:
    append(world.acme, "fast", [{"type": "conversation.opened", "policy": {"compaction": False}}])
    browser = world.sign_in()
    world.show_live("conversations/fast/log").shows("This is the first event.")
    for first in range(0, MANY, 500):
        numbers = range(first, min(first + 500, MANY))
        append(world.acme, "fast", [{"type": "message", "role": "user", "content": f"no. {n}."} for n in numbers])  # fmt: skip
    browser.shows(f"no. {MANY - 1}.", "some are not listed")
    assert "no. 1." not in browser.text()
    browser.button("Read the log again")
    browser.until(lambda: "some are not listed" not in browser.text(), "it is not read again")
    browser.button("Show older events")
    read = "return [...document.querySelectorAll('ol.messages .text')].map((e) => e.textContent)"
    newest = [f"no. {n}." for n in range(MANY - 1, MANY - 101, -1)]
    browser.until(
        lambda: [text for text in browser.run(read) if text.startswith("no.")] == newest,
        "the log has a gap",
    )


def test_the_slider_grows_with_the_conversation_and_stays_where_it_is(world: World) -> None:
    append(world.acme, "growing", [{"type": "message", "role": "user", "content": "One."}])
    browser = world.sign_in()
    world.show_live("conversations/growing/then").shows("Event 1 of 1", "The window after 1 event")
    append(world.acme, "growing", [{"type": "message", "role": "user", "content": "Two."}])
    browser.shows("Event 1 of 2")
    browser.button("Later")
    browser.shows("Event 2 of 2", "The window after 2 events", "Two.")


def test_a_memory_shows_the_event_that_taught_it(world: World) -> None:
    opened = {"type": "conversation.opened", "user": "u-9", "policy": {"memory_auto": "sessions"}}
    said = {"type": "message", "role": "user", "content": "Good morning! I live in Bergen."}
    append(world.acme, "teaching", [opened, said])
    append(world.acme, "teaching", [{"type": "session.closed", "reason": "explicit"}])
    browser = world.sign_in()

    def learnt() -> bool:
        path = "/v1/memories?conversation=teaching&user=u-9"
        return bool(world.acme.get(path).json()["memories"])

    browser.until(learnt, "nothing is learnt", 60)
    world.show("conversations/teaching/memories").shows("The user lives in Bergen.")
    assert "Good morning!" not in browser.text()
    browser.button("Show the event")
    browser.shows("Good morning! I live in Bergen.")


def test_a_turn_says_until_when_it_lasts(world: World) -> None:
    append(world.acme, "leased", talk(1))
    turn = {"turn_id": "first", "seconds": 600}
    world.acme.post("/v1/conversations/leased/turns", json=turn).raise_for_status()
    browser = world.sign_in()
    world.show("conversations/leased").shows("first (token")
    shown = browser.run(
        "return [...document.querySelectorAll('dd')].find((e) => e.textContent.startsWith('first')).textContent"
    )
    until = browser.run(
        "return new Date(Date.now() + 600000).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'})"
    )
    # The clock moves on between the two, and a minute may begin.
    hours, minutes = map(int, shown.split("until ")[1].split(":")[:2])
    late = (60 * int(until[:2]) + int(until[3:])) - (60 * hours + minutes)
    assert late % (24 * 60) <= 2, (shown, until)


def test_an_end_user_is_told_that_tokens_do_not_answer_suspensions(world: World) -> None:
    opened = {"type": "conversation.opened", "user": "eve"}
    append(world.acme, "of-eve", [opened, *approval("pay-eve")])
    wanted = {"user": "eve", "verbs": ["read", "stream", "append"]}
    browser = world.sign_in(world.acme.post("/v1/tokens", json=wanted).json()["token"])
    world.show("conversations/of-eve").shows("Waits for an approval")
    browser.shows("A token of an end user cannot answer.")
    assert "lacks the scope" not in browser.text() and "Turn" not in browser.text()


def test_a_conversation_stays_listed_when_a_newer_one_moves_it_off_the_first_page(
    world: World,
) -> None:
    def begin(*numbers: int) -> None:
        said = [
            {
                "conversation": f"listed-{n}",
                "type": "message",
                "role": "user",
                "content": f"This is number {n}.",
            }
            for n in numbers
        ]
        world.acme.post("/v1/events?wait=applied", json=said).raise_for_status()

    for n in range(52):
        begin(n)
    browser = world.sign_in()

    def listed() -> list[int]:
        names = [row[0] for row in rows(browser, "Conversations")]
        return [int(name.removeprefix("listed-")) for name in names if name.startswith("listed-")]

    world.show("conversations")
    browser.until(lambda: listed() == list(range(51, 1, -1)), "not the newest page")
    browser.button("Show older")
    browser.until(lambda: listed() == list(range(51, -1, -1)), "not all are listed")
    begin(52)
    browser.until(lambda: listed() == list(range(52, -1, -1)), "one is lost between two pages")


def test_an_address_that_is_no_escape_is_taken_as_it_is(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations/100%").shows("Conversations")
    assert browser.run("return document.querySelector('h1').textContent") == "100%"
