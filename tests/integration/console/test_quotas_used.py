"""The overview says which quotas tenants use, and how much of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from streams.settings.quotas import DEFAULT_SCOPES
from tests.support.browser import Browser
from tests.support.console_world import World

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]
TENANT = "spender"
QUOTA = {"requests_per_second": 1, "events_per_second": 50}
EVENTS = 150
"""Of one request: of its quota of events it uses three times as much as of that of requests."""
EVERY = 8.0
"""Seconds between two requests: more than the quota of events needs."""
ROWS = """
const rows = document.querySelectorAll("section[aria-labelledby='used'] tbody tr");
return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent));
"""


@pytest.fixture
def spending(world: World) -> Iterator[list[int]]:
    """A tenant that appends now and then, as its quotas admit; what it was answered so far."""
    body = {"name": TENANT, "quota": QUOTA, "scopes": list(DEFAULT_SCOPES)}
    made = world.acme.post("/v1/tenants", json=body)
    made.raise_for_status()
    said = [{"type": "message", "role": "user", "content": f"line {i}"} for i in range(EVENTS)]
    answers, done = list[int](), threading.Event()

    def spend() -> None:
        headers = {"Authorization": f"Bearer {made.json()['key']}"}
        with httpx.Client(base_url=world.url, headers=headers, timeout=60, trust_env=False) as own:
            while not done.is_set():
                sent = own.post("/v1/conversations/much/events", json=said)
                answers.append(sent.status_code)
                # One that is refused shifts the shares for a while only.
                assert sent.status_code in (202, 429), sent.text
                done.wait(EVERY)

    thread = threading.Thread(target=spend)
    thread.start()
    yield answers
    done.set()
    thread.join()


def used(browser: Browser) -> dict[str, int]:
    """What the overview says that the tenant uses: percent by quota."""
    rows = browser.run(ROWS)
    return {quota: int(share.split()[0]) for tenant, quota, share in rows if tenant == TENANT}


def right(found: dict[str, int]) -> bool:
    """Both are of the same requests, so one follows from the other, but for its rounding."""
    requests, events = found.get("requests per second", 0), found.get("events per second", 0)
    return 0 < requests <= 100 / 3 and abs(events - 3 * requests) <= 2


def test_the_overview_says_how_much_of_its_quotas_a_tenant_uses(
    world: World, spending: list[int], tmp_path: Path
) -> None:
    browser = world.sign_in()
    world.show("overview").shows("Quotas used")
    for width in (360, 1440):
        browser.appear(width, "light")
        browser.until(lambda: right(used(browser)), f"it never is right at {width} px", 180)
        wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], f"it is wider than its window of {width} px"
        browser.run("document.getElementById('used').scrollIntoView()")
        browser.screenshot(tmp_path / f"quotas-used-{width}.png")
    assert 202 in spending
