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
from tests.support.console_world import AXE, World, faults

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


def check_looks(browser: Browser, folder: Path) -> None:
    """The comparison fits any width and has no serious fault, in both themes."""
    if AXE.exists():
        browser.evaluate(AXE.read_text())
    for width in (360, 1440):
        for scheme in ("light", "dark"):
            browser.appear(width, scheme)
            assert not AXE.exists() or faults(browser) == [], (width, scheme)
            browser.screenshot(folder / f"{width}-{scheme}.png")


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
    browser.until(lambda: "Nothing of these conversations" in browser.text(), "no report", 90)
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
    browser.shows("Nothing of these conversations would be lost.", "acme/journey")
    browser.shows("Tokens of all contexts", "Cost of reading each context once")
    row = "return [...document.querySelectorAll('tr')].find((r) => r.innerText.startsWith('Messages')).innerText"
    now, then = browser.run(row).split("\t")[1:3]
    assert int(then) < int(now)
    check_looks(browser, tmp_path)

    # The log loses its first events, so a new fold lacks what the summary holds.
    partition = partition_of(Key("acme", "journey"), world.settings.partitions)
    asyncio.run(eaten(world.settings, {partition: 3}))
    browser.button("Compare")
    browser.shows("would lose what their summaries hold", "the log does not hold all its events")
    browser.button("Build a generation under it")
    browser.shows(f"Generation {made} is begun.")
    browser.until(lambda: stage(world, made) == "ready", "it is not built", 90)
    browser.shows("all events folded")
    press(browser, "Switch to", made)
    browser.shows(f"generation {made} is not made live", "acme/journey")
    assert stage(world, made) == "ready"
    press(browser, "Accept the loss and switch to", made)
    browser.shows(f"Live: generation {made}")
    press(browser, "Drop", before)
    browser.until(
        lambda: f"Drop generation {before}" not in browser.run("return document.body.innerHTML"),
        "it is not dropped",
    )
    assert [entry for entry in browser.log() if "422" not in entry] == []
