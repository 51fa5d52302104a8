"""The console as people use it: a gateway with two tenants, and a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from streams.settings.settings import Settings
from tests.support.browser import Browser
from tests.support.tokens import Signer

CONSOLE = Path(__file__).resolve().parents[2] / "console"
PACKAGES = CONSOLE / "node_modules"
AXE = PACKAGES / "axe-core" / "axe.min.js"


def faults(browser: Browser) -> list[Any]:
    """What is wrong with the page as it is shown, which has axe in it: it is too wide, or axe finds
    a serious fault.
    """
    wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
    found = browser.run("return axe.run(document, {resultTypes: ['violations']})")
    return [
        *([f"it is wider than its window: {wide}"] if wide[0] > wide[1] else []),
        *(
            (one["id"], [node["html"][:120] for node in one["nodes"][:3]])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ),
    ]


def check_looks(browser: Browser, folder: Path, name: str) -> None:
    """The page fits any width and has no serious fault, in both themes; pictures of it are left in
    a folder.
    """
    if AXE.exists():
        browser.evaluate(AXE.read_text())
    for width in (360, 1440):
        for scheme in ("light", "dark"):
            browser.appear(width, scheme)
            assert not AXE.exists() or faults(browser) == [], (width, scheme)
            browser.screenshot(folder / f"{name}-{width}-{scheme}.png")


def rows(browser: Browser, table: str) -> list[list[str]]:
    """The cells of a table by its name, row by row; none while it is not there."""
    script = """
        const rows = document.querySelectorAll(`[aria-label="${arguments[0]}"] tbody tr`);
        return [...rows].map((row) => [...row.cells].map((cell) => cell.innerText));
    """
    found: list[list[str]] = browser.run(script, table)
    return found


@dataclass(frozen=True)
class World:
    """A gateway with the tenants acme and rival, and a browser. ``signer`` signs tokens that the
    gateway trusts.
    """

    url: str
    acme: httpx.Client
    key: str
    rival_key: str
    browser: Browser
    settings: Settings
    signer: Signer

    def sign_in(self, key: str | None = None) -> Browser:
        """The browser, signed in; its tab has forgotten who was."""
        browser = self.browser
        browser.open(f"{self.url}/healthz")
        browser.run("sessionStorage.clear()")
        browser.open(f"{self.url}/")
        browser.write("Key", key or self.key)
        browser.button("Sign in")
        browser.shows("Sign out")
        browser.log()
        return browser

    def show_live(self, view: str) -> Browser:
        """Show a view of a conversation, and wait until its stream is open."""
        self.show(view).find("//*[@class='badge on'][.='live']")
        return self.browser

    def show(self, view: str) -> Browser:
        self.browser.run("location.hash = arguments[0]", f"#/{view}")
        return self.browser
