"""The console in a real browser, on the real stack: every view, what a person does in it, and what
it never shows.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from redis import Redis

from projections.names import Key, partition_of
from projections.storage.layout import HEAD
from tests.support.browser import ENTER, TAB
from tests.support.console_traffic import append, approval, talk
from tests.support.console_world import AXE, CONSOLE, PACKAGES, World, faults, rows
from tests.support.raw_records import put_raw
from threadfold.demo.agents import agent_events

pytestmark = pytest.mark.long
VIEWS = {
    "overview": "Partitions",
    "conversations": "A journey to London",
    "conversations/journey": "[Summary of the earlier conversation]",
    "conversations/journey/then": "by today's rules",
    "conversations/journey/log": "Book the first one.",
    "conversations/journey/calls": "Render again",
    "conversations/journey/memories": "Prefers a seat at the window.",
    "approvals": "Waits for an approval",
    "tenants": "rival",
    "tenants/rival": "Make a key",
    "reprojection": "Compare two policies",
    "care": "Dead letters",
}
"""The views by their addresses, each with something that it shows."""


def test_the_sources_hold_their_types_and_build_to_what_is_shipped(tmp_path: Path) -> None:
    if not PACKAGES.exists() or shutil.which("node") is None:
        pytest.skip("no Node, or no packages: `npm ci` in console/ to test its build")
    for command in (["node_modules/typescript/bin/tsc"], ["build.mjs", str(tmp_path)]):
        done = subprocess.run(["node", *command], cwd=CONSOLE, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    shipped = CONSOLE.parent / "threadfold" / "console"
    for path in shipped.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_every_view_shows_what_it_is_for_and_reports_no_error(world: World) -> None:
    browser = world.sign_in()
    for view, text in VIEWS.items():
        world.show(view).shows(text)
    # A refused script, style or request would be here.
    assert browser.log() == []


def test_the_demos_traffic_is_shown_as_it_comes(world: World) -> None:
    events = list(agent_events(seed=3, turns=8))
    append(world.acme, "desk", events[: len(events) // 2])
    browser = world.sign_in()
    world.show_live("conversations/desk").shows("parcel desk's assistant", "find_parcel")
    append(world.acme, "desk", events[len(events) // 2 :])
    browser.shows(next(one["content"] for one in reversed(events) if one.get("content")))
    world.show("overview")

    def shown() -> bool:
        # A rate is of two reports, each of another ten seconds: what was said before is in the first.
        append(world.acme, "desk", [{"type": "message", "role": "user", "content": "And now?"}])
        found = rows(browser, "Tenants that append most")
        return [float(rate) > 0 for name, rate in found if name == "acme"] == [True]

    browser.until(shown, "the tenant that appends is not shown", 90)
    label = "return document.querySelector('[aria-label^=\"Events folded\"]')?.ariaLabel ?? ''"
    browser.until(lambda: re.search("(?<! 0) at most", browser.run(label)), "none is folded", 90)
    assert browser.log() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_every_view_fits_and_has_no_serious_fault(
    world: World, width: int, scheme: str, tmp_path: Path
) -> None:
    if not AXE.exists():
        pytest.skip(
            "axe is not installed: `npm ci` in console/ to test the console's accessibility"
        )
    browser = world.sign_in()
    browser.appear(width, scheme)
    browser.evaluate(AXE.read_text())
    browser.run("document.body.append(document.createElement('img'))")
    found = browser.run("return axe.run('body > img')")
    assert [one["id"] for one in found["violations"]] == ["image-alt"], "axe finds no fault at all"
    browser.run("document.querySelector('body > img').remove()")
    for view, text in VIEWS.items():
        world.show(view).shows(text)
        assert faults(browser) == [], view
        browser.screenshot(tmp_path / f"{view.replace('/', '-')}.png")


def test_a_person_approves_a_call_and_the_conversation_goes_on(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations/answered").shows(
        "Waits for an approval", "Pay 100 EUR for flight 100?"
    )
    browser.write("Comment", "as agreed")
    browser.button("Approve")
    browser.until(lambda: "Waits for an approval" not in browser.text(), "it still waits")
    context = world.acme.get("/v1/conversations/answered/context").json()
    assert context["suspensions"] == []
    events = world.acme.get("/v1/conversations/answered/history?limit=1").json()["events"]
    assert (events[0]["type"], events[0]["outcome"]) == ("resolution", "approved")
    assert events[0]["content"] == "as agreed"


def test_a_person_rejects_a_call_and_answers_a_question(world: World) -> None:
    append(world.acme, "rejected", [*talk(1), *approval("pay-3")])
    asked = {"type": "suspension", "suspension_id": "day", "kind": "input", "prompt": "Which day?"}
    append(world.acme, "asked", [*talk(1), asked])
    browser = world.sign_in()
    world.show("conversations/rejected").shows("Waits for an approval")
    browser.button("Reject")
    browser.until(lambda: "Waits for an approval" not in browser.text(), "it still waits")
    world.show("conversations/asked").shows("Waits for an answer", "Which day?")
    browser.write("Answer", "Tuesday")
    browser.button("Answer")
    browser.until(lambda: "Waits for an answer" not in browser.text(), "it still waits")
    found = []
    for name in ("rejected", "asked"):
        events = world.acme.get(f"/v1/conversations/{name}/history?limit=1").json()["events"]
        found.append((events[0]["outcome"], events[0].get("content")))
    assert found == [("rejected", None), ("answered", "Tuesday")]


def test_a_conversation_that_cannot_be_read_is_named_and_shows_no_numbers(world: World) -> None:
    append(world.acme, "garbled", [*talk(1), *approval("pay-garbled")])
    settings, key = world.settings, Key("acme", "garbled")
    partition = partition_of(key, settings.partitions)
    stored = f"{settings.topic_prefix}:{{1:{partition}}}:w:{key}"
    with Redis.from_url(settings.redis) as store:
        whole = store.hgetall(stored)
        store.hset(stored, HEAD, b"\xff")
        browser = world.sign_in()
        world.show("conversations").shows("unreadable")
        row = next(row for row in rows(browser, "Conversations") if row[0].startswith("garbled"))
        assert row[1:4] == ["unreadable", "", ""]
        world.show("approvals").shows("cannot be read, and may wait: garbled.")
        store.hset(stored, mapping=whole)
    browser.until(lambda: "cannot be read" not in browser.text(), "it is named")


def test_conversations_are_chosen_by_a_state_in_plain_words(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations").shows("A journey to London")
    offered = browser.run("return [...document.querySelector('select').options].map((o) => o.text)")
    assert offered == ["any", "active", "awaiting input", "awaiting approval", "idle", "closed"]
    choose = """
        const state = document.querySelector("select");
        state.value = [...state.options].find((one) => one.text === arguments[0]).value;
        state.dispatchEvent(new Event("change", {bubbles: true}));
    """
    browser.run(choose, "awaiting approval")
    states = (
        "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[1].innerText)"
    )
    browser.until(lambda: set(browser.run(states)) == {"awaiting approval"}, "others are listed")
    assert "A journey to London" in browser.text()
    browser.run(choose, "closed")
    browser.shows("No conversation matches.")


def test_a_conversation_says_whose_turn_it_is_and_what_it_taught(world: World) -> None:
    learning = {"type": "conversation.opened", "user": "u-8", "policy": {"memory_auto": "sessions"}}
    said = {"type": "message", "role": "user", "content": "Hello! I live in Lisbon."}
    append(world.acme, "taught", [learning, said])
    position = world.acme.get("/v1/conversations/taught/context").json()["position"]
    append(world.acme, "taught", [{"type": "session.closed", "reason": "explicit"}])
    for turn in ({"turn_id": "first"}, {"turn_id": "second", "policy": "queue"}):
        world.acme.post("/v1/conversations/taught/turns", json=turn).raise_for_status()
    browser = world.sign_in()
    world.show("conversations/taught").shows("first (token", "Turns that wait", "second")

    def learnt() -> bool:
        shown = world.acme.get("/v1/memories?conversation=taught&user=u-8").json()
        return bool(shown["memories"])

    browser.until(learnt, "nothing is learnt", 60)
    world.show("conversations/taught/memories").shows("The user lives in Lisbon.")
    browser.shows("said by the user", f"Learnt from {position}")


def test_the_bar_has_a_colour_for_each_lane_and_names_it(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations/journey").shows("the right end is the ceiling")
    names = browser.run(
        "return [...document.querySelectorAll('.legend span')].map((e) => e.innerText)"
    )
    lanes = {name.strip().rstrip("0123456789, ") for name in names}
    assert {"system lane", "summary", "tail", "waiting calls"} <= lanes
    fills = browser.run(
        "return [...document.querySelectorAll('.bar path')].map((e) => getComputedStyle(e).fill)"
    )
    assert len(set(fills)) == len(fills) == len(names)


def test_a_window_grows_while_it_is_open(world: World) -> None:
    browser = world.sign_in()
    append(world.acme, "live-one", talk(1))
    world.show_live("conversations/live-one").shows("On day 1 the cheapest is flight 100")
    append(world.acme, "live-one", [{"type": "message", "role": "user", "content": "And back?"}])
    browser.shows("And back?")
    piece = {"turn_id": "t-1", "delta": "The way back is", "offset": 0}
    world.acme.post("/v1/conversations/live-one/partial", json=piece).raise_for_status()
    browser.shows("in progress", "The way back is")


def test_a_shortened_result_is_shown_whole_and_a_window_as_it_was(world: World) -> None:
    browser = world.sign_in()
    world.show("conversations/journey").shows("Shortened from")
    assert "flight 130: OSL to LHR" not in browser.text()
    browser.button("Show the original")
    browser.shows("flight 130: OSL to LHR")
    world.show("conversations/journey/then").shows("by today's rules")
    slider = browser.find("//input[@type='range']")
    browser.command("POST", f"element/{slider}/value", {"text": "\ue011"})  # Home: the first event
    browser.shows("Event 1 of", "The window after 1 event")
    browser.button("Later")
    browser.shows("Event 2 of", "You book journeys. Ask before you pay.")
    assert "Which flights" not in browser.text()


def test_the_log_goes_back_to_the_first_event_and_a_render_says_whether_it_agrees(
    world: World,
) -> None:
    browser = world.sign_in()
    world.show("conversations/journey/log").shows("Book the first one.")
    browser.button("Show older events")
    browser.shows("This is the first event.", "conversation.opened")
    world.show("conversations/journey/calls").shows("gpt-5-mini")
    browser.button("Render again")
    browser.shows("It agrees.")


def test_another_tenant_sees_nothing_of_it_and_nothing_of_the_platform(world: World) -> None:
    browser = world.sign_in(world.rival_key)
    browser.shows("Overview")
    assert "Tenants" not in browser.text() and "acme" not in browser.text()
    world.show("conversations").shows("No conversation matches.")
    for tab in ("", "/then", "/log", "/memories"):
        world.show(f"conversations/journey{tab}").shows("is not known")
        assert "flight" not in browser.text() and "seat" not in browser.text()
    world.show("approvals").shows("Nobody waits")
    world.show("tenants/acme").shows("There is no such view for you.")


def test_an_end_user_sees_the_own_conversations_and_nothing_else(world: World) -> None:
    for user in ("ann", "bob"):
        opened = {"type": "conversation.opened", "user": user}
        said = {"type": "message", "role": "user", "content": f"This is {user}."}
        append(world.acme, f"of-{user}", [opened, said])
    wanted = {"user": "ann", "verbs": ["read", "stream", "append"]}
    browser = world.sign_in(world.acme.post("/v1/tokens", json=wanted).json()["token"])
    browser.shows("ann of acme", "of-ann")
    links = browser.run("return [...document.querySelectorAll('nav a')].map((a) => a.innerText)")
    assert links == ["Conversations"]
    assert not any(name in browser.text() for name in ("of-bob", "journey", "rival"))
    world.show_live("conversations/of-ann").shows("This is ann.")
    append(world.acme, "of-ann", [{"type": "message", "role": "user", "content": "Me again."}])
    browser.shows("Me again.")
    tabs = browser.run("return [...document.querySelectorAll('.tabs a')].map((a) => a.innerText)")
    assert tabs == ["Window", "Log", "Memories"]
    for tab, shown in (("log", "This is ann."), ("memories", "Nothing was learnt")):
        world.show(f"conversations/of-ann/{tab}").shows(shown)
    assert browser.log() == []
    for tab in ("", "/then", "/log", "/calls"):
        world.show(f"conversations/of-bob{tab}").shows("is not known")
        assert "This is bob" not in browser.text()
    for view in ("overview", "approvals", "tenants", "reprojection", "care"):
        world.show(view).shows("There is no such view for you.")


def test_a_wrong_key_is_refused_and_a_key_ends_with_its_session(world: World) -> None:
    browser = world.sign_in()
    browser.button("Sign out")
    browser.shows("Key")
    assert browser.run("return sessionStorage.length + localStorage.length") == 0
    browser.write("Key", "tf_wrong")
    browser.button("Sign in")
    browser.shows("the key is unknown or revoked")
    assert browser.run("return [document.cookie, localStorage.length]") == ["", 0]


def test_it_is_used_by_keyboard_alone(world: World) -> None:
    browser = world.sign_in()
    world.show("approvals").shows("Waits for an approval")
    browser.run("document.activeElement.blur()")
    seen = []
    for _ in range(14):
        browser.press(TAB)
        seen.append(
            browser.run("return document.activeElement.innerText || document.activeElement.tagName")
        )
        if seen[-1] == "Conversations":
            break
    assert "Skip to the content" in seen
    browser.press(ENTER)
    browser.shows("A journey to London")


def test_an_approval_is_given_by_keyboard_alone(world: World) -> None:
    append(world.acme, "by-keys", [*talk(1), *approval("pay-by-keys")])
    browser = world.sign_in()
    world.show("conversations/by-keys").shows("Waits for an approval")
    browser.run("document.activeElement.blur()")
    browser.tab_to("Comment")
    browser.type("by keys")
    browser.tab_to("Approve")
    browser.press(ENTER)
    browser.until(lambda: "Waits for an approval" not in browser.text(), "it still waits")
    (event,) = world.acme.get("/v1/conversations/by-keys/history?limit=1").json()["events"]
    assert (event["outcome"], event["content"]) == ("approved", "by keys")


def test_the_operator_makes_and_revokes_a_key_and_erases_with_a_receipt(world: World) -> None:
    browser = world.sign_in()
    append(world.acme, "to-erase", talk(1))
    world.show("tenants/rival").shows("Make a key")
    browser.write("Name of a new key", "from-console")
    browser.button("Make a key")
    browser.shows("The key, shown once", "from-console")
    browser.run("window.confirm = () => true")
    browser.click("//button[@aria-label='Revoke from-console']")
    browser.until(
        lambda: (
            "from-console" not in browser.run("return document.querySelector('tbody').innerText")
        ),
        "the key is still there",
    )
    world.show("care").shows("Erase for good")
    browser.write("Name", "to-erase")
    browser.write("The name again", "to-erase")
    browser.button("Erase for good")
    browser.shows("Erased. The receipt:", "windows")
    assert world.acme.get("/v1/conversations/to-erase/context").status_code == 410


def test_the_operator_adds_a_tenant_changes_its_quota_and_looks_into_it(world: World) -> None:
    browser = world.sign_in()
    world.show("tenants").shows("Add a tenant")
    browser.write("Name", "newcomer")
    browser.button("Add")
    browser.shows("The key, shown once")
    key = browser.run("return document.querySelector('.secret code').innerText")
    own = {"Authorization": f"Bearer {key}"}
    said = {"type": "message", "role": "user", "content": "Is anybody there?"}
    path = "/v1/conversations/of-newcomer/events?wait=applied"
    world.acme.post(path, json=said, headers=own).raise_for_status()
    world.show("tenants/newcomer").shows("Change quotas")
    browser.write("requests per second", "7")
    browser.button("Change quotas")
    browser.until(
        lambda: (
            world.acme.get("/v1/tenants/newcomer").json()["quota"].get("requests_per_second") == 7
        ),
        "the quota is not changed",
    )
    browser.button("Look at its conversations")
    browser.shows("of-newcomer", "newcomer")
    links = browser.run("return [...document.querySelectorAll('nav a')].map((a) => a.innerText)")
    assert "Tenants" not in links, "the key that was made reads alone"


def test_the_operator_inspects_retries_and_drops_a_dead_letter(world: World) -> None:
    key = Key("acme", "poisoned")
    partition = partition_of(key, world.settings.partitions)
    row = (partition, str(key).encode(), b"{not json")
    (sent,) = asyncio.run(put_raw(world.settings, "events", row))
    position = f"{partition}-{sent.offset}"
    later = {"type": "message", "role": "user", "content": "later"}
    world.acme.post("/v1/conversations/poisoned/events?wait=applied", json=later)
    browser = world.sign_in()
    world.show("care").shows("acme/poisoned", "the value is not an event")
    browser.click(f"//button[@aria-label='Inspect {position}']")
    browser.shows('"kind": "poison"')
    browser.click(f"//button[@aria-label='Retry {position}']")
    browser.shows(f"acme/poisoned: parked at {position}: the value is not an event")
    browser.run("window.confirm = () => true")
    browser.click(f"//button[@aria-label='Drop {position}']")
    browser.shows("acme/poisoned: done", "There are no dead letters.")
    context = world.acme.get("/v1/conversations/poisoned/context").json()
    assert [one["content"] for one in context["messages"]] == ["later"] and "parked" not in context
