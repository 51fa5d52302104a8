"""In a browser: an operator compares two policies, builds a generation under one, watches it, and
switches; a switch that would lose something only once that is accepted.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from projections.names import Key, partition_of
from tests.integration.log.test_truncated_log import eaten
from tests.support.browser import ENTER, Browser
from tests.support.console_world import World, check_looks

pytestmark = pytest.mark.long
DOWN = "\ue015"
SHORT = {"reducers": [{"name": "keep_last_n_messages", "n": 4}]}


def choose(browser: Browser, policy: dict[str, Any]) -> None:
    """Write a policy into the field."""
    script = """
        const field = document.querySelector("textarea");
        field.value = arguments[0];
        field.dispatchEvent(new Event("input", {bubbles: true}));
    """
    browser.run(script, json.dumps(policy))


def press(browser: Browser, text: str, number: int) -> None:
    browser.click(f"//button[@aria-label='{text} generation {number}'][not(@disabled)]")


ROWS = """
    const rows = [...document.querySelectorAll("ol.sides > li")];
    return rows.map((row) => [row.classList.contains("differs"), ...[...row.children].map((side) => side.innerText)]);
"""


def check_both_windows(browser: Browser, folder: Path) -> None:
    """The two windows of a conversation stand side by side, and what differs is marked."""
    browser.click("//button[@aria-label='Show both windows of acme/journey']")
    browser.shows("Both windows of acme/journey", "messages differ")
    found = browser.run(ROWS)
    differing = [(live, other) for differs, live, other in found if differs]
    assert 0 < len(differing) < len(found)
    assert all("not there" in other for live, other in differing if "only live" in live)
    assert any("only live" in live for live, _ in differing), "four messages are kept of many"
    for differs, live, other in found:
        # A side begins with whose it is, where there is no head above it.
        same = live.removeprefix("Live").strip() == other.removeprefix("Other").strip()
        assert same != differs
    assert any("You book journeys." in live for _, live, _ in found)
    folder.mkdir()
    check_looks(browser, folder, "windows")
    browser.click("//label[normalize-space()='Only what differs']/input")
    browser.until(lambda: len(browser.run(ROWS)) == len(differing), "others are shown")
    for width, scheme in ((360, "dark"), (1440, "light")):
        browser.appear(width, scheme)
        browser.run("document.getElementById('both-windows').scrollIntoView()")
        browser.screenshot(folder / f"only-{width}.png")
    browser.button("Close")
    browser.until(lambda: "Both windows" not in browser.text(), "it stays")


def stage(world: World, number: int) -> str:
    listed = world.acme.get("/v1/generations").json()["generations"]
    return next(str(one["stage"]) for one in listed if one["number"] == number)


def live(world: World) -> int:
    """The generation that is live."""
    listed = world.acme.get("/v1/generations").json()["generations"]
    return next(int(one["number"]) for one in listed if one["stage"] == "live")


def test_two_policies_are_compared_and_one_is_built_and_made_live_by_keyboard_alone(
    world: World,
) -> None:
    browser = world.sign_in()
    before = live(world)
    world.show("reprojection").shows("Compare two policies", f"Live: generation {before}")
    browser.tab_to("Skip to the content")
    browser.press(ENTER)
    browser.tab_to("Other policy of the deployment")
    browser.type(json.dumps(SHORT))
    browser.tab_to("Conversations")
    browser.press(DOWN)
    browser.tab_to("Compare")
    browser.press(ENTER)
    browser.until(lambda: "A switch would lose nothing" in browser.text(), "no report", 90)
    browser.shows("acme/journey")
    assert browser.run("return document.querySelector('select').value") == "200"
    world.show("overview").shows("Partitions")
    world.show("reprojection").shows("Compare two policies")
    browser.tab_to("Other policy of the deployment")
    browser.type(json.dumps({"soft_trim_chars": 2_999}))
    browser.tab_to("Build a generation under it")
    browser.press(ENTER)
    made = before + 1
    browser.shows(f"Generation {made} is begun.")
    browser.until(lambda: stage(world, made) == "ready", "it is not built", 90)
    browser.shows("all events folded")
    # What has just been built is switched to once its task has ended.
    browser.find(f"//button[@aria-label='Switch to generation {made}'][not(@disabled)]")
    browser.tab_to(f"Switch to generation {made}")
    browser.press(ENTER)
    browser.shows(f"Live: generation {made}")
    assert browser.log() == []


def test_two_policies_are_compared_one_is_built_and_a_lossy_switch_is_refused_until_accepted(
    world: World, tmp_path: Path
) -> None:
    browser = world.sign_in()
    browser.run("window.confirm = () => true")
    before = live(world)
    made = before + 1
    world.show("reprojection").shows("Compare two policies", f"Live: generation {before}")
    choose(browser, {"model_windw": 1})
    browser.button("Compare")
    browser.shows("model_windw", "(422)")
    choose(browser, SHORT)
    browser.write("Price of a million tokens", "3")
    browser.button("Compare")
    browser.shows("A switch would lose nothing", "acme/journey")
    browser.shows("Tokens of all contexts", "Cost of reading each context once")
    row = "return [...document.querySelectorAll('tr')].find((r) => r.innerText.startsWith('Messages')).innerText"
    now, then = browser.run(row).split("\t")[1:3]
    assert int(then) < int(now)
    check_looks(browser, tmp_path, "comparison")
    check_both_windows(browser, tmp_path / "both")

    # The log loses its first events, so a new fold lacks what the summary holds.
    partition = partition_of(Key("acme", "journey"), world.settings.partitions)
    asyncio.run(eaten(world.settings, {partition: 3}))
    browser.button("Compare")
    browser.shows(
        "would lose something that their windows hold",
        "the log has lost its events before offset 3",
    )
    browser.button("Build a generation under it")
    browser.shows(f"Generation {made} is begun.")
    browser.until(lambda: stage(world, made) == "ready", "it is not built", 90)
    browser.shows("all events folded")
    press(browser, "Switch to", made)
    refused = f"generation {made} is not made live"
    browser.until(lambda: refused in browser.text(), "it is not refused", 90)
    browser.shows("acme/journey")
    assert stage(world, made) == "ready"
    press(browser, "Accept the loss and switch to", made)
    browser.until(lambda: f"Live: generation {made}" in browser.text(), "it is not live", 90)
    press(browser, "Drop", before)
    browser.until(
        lambda: f"Drop generation {before}" not in browser.run("return document.body.innerHTML"),
        "it is not dropped",
    )
    assert [entry for entry in browser.log() if "422" not in entry] == []
