"""A headless Chromium, driven by the WebDriver protocol: what the tests of the console look through."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.ports import own_ports

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The name under which the protocol gives an element's id."""
ENTER, TAB = "\ue007", "\ue004"
FOCUS = """
    const one = document.activeElement;
    const text = one.labels && one.labels[0] ? one.labels[0].innerText : one.innerText;
    const name = ["BODY", "MAIN"].includes(one.tagName) ? one.tagName : one.ariaLabel || text;
    return [name || one.tagName, getComputedStyle(one).outlineStyle];
"""
"""What has the focus, by its name, and the outline that shows it."""
REST = """
    const one = arguments[0];
    one.scrollIntoView({ block: "center" });
    const frame = () => new Promise((next) => requestAnimationFrame(next));
    const place = () => JSON.stringify(one.getBoundingClientRect());
    let last = "";
    for (let same = 0, looks = 0; same < 5 && looks < 300 && one.isConnected; looks++) {
        same = place() === last ? same + 1 : 0;
        last = place();
        await frame();
    }
"""
"""Bring an element into sight, and wait until it rests: rows that come into sight get their height
only then, and a click at where the button was is lost."""
PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "driver": ("chromedriver",),
}


class Browser:
    """One window of a browser. What it looks for it waits for."""

    def __init__(self, session: httpx.Client, path: str) -> None:
        self._http = session
        self._path = path

    def command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        json = None if method == "GET" else (body or {})
        answer = self._http.request(method, f"{self._path}/{path}", json=json)
        found = answer.json()["value"]
        if answer.status_code != 200:
            raise AssertionError(f"{method} {path}: {found['message'].splitlines()[0]}")
        return found

    def open(self, url: str) -> None:
        self.command("POST", "url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; it may be a promise."""
        return self.command("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def evaluate(self, script: str) -> None:
        """Run a program in the page, as its security policy allows no other way."""
        self._cdp("Runtime.evaluate", {"expression": script})

    def text(self) -> str:
        # innerText lacks rows that are not drawn as they are not in sight.
        return str(self.run("return document.body.textContent"))

    def find(self, xpath: str) -> str:
        """The id of the first element that is displayed."""

        def look() -> str | None:
            found = self.command("POST", "elements", {"using": "xpath", "value": xpath})
            ids = [one[ELEMENT] for one in found]
            return next(
                (id_ for id_ in ids if self.command("GET", f"element/{id_}/displayed")), None
            )

        return str(self.until(look, f"no element {xpath}"))

    def click(self, xpath: str) -> None:
        id_ = self.find(xpath)
        self.run(REST, {ELEMENT: id_})
        self.command("POST", f"element/{id_}/click")

    def button(self, text: str) -> None:
        self.click(f"//button[normalize-space()={text!r}]")

    def link(self, text: str) -> None:
        self.click(f"//a[normalize-space()={text!r}]")

    def write(self, label: str, text: str) -> None:
        """Write into the field with this label."""
        path = (
            f"//label[starts-with(normalize-space(), {label!r})]//*[self::input or self::textarea]"
        )
        self.command("POST", f"element/{self.find(path)}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        steps = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keys = {"type": "key", "id": "keys", "actions": steps}
        self.command("POST", "actions", {"actions": [keys]})

    def type(self, text: str) -> None:
        """Type over all that the field with the focus holds."""
        control = "\ue009"
        steps = [{"type": "keyDown", "value": control}]
        for key in ("a", control, *text):
            steps += [{"type": "keyDown", "value": key}] if key != control else []
            steps.append({"type": "keyUp", "value": key})
        self.command(
            "POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]}
        )

    def tab_to(self, name: str, most: int = 40) -> None:
        """Press Tab until what has this name (its label or text) has the focus, and shows it."""
        seen: list[str] = []
        for _ in range(most):
            self.press(TAB)
            found, outline = self.run(FOCUS)
            seen.append(found)
            if found.startswith(name):
                assert outline != "none", f"{name} does not show that it has the focus"
                return
        raise AssertionError(f"Tab does not lead to {name!r}; it led to {seen}")

    def shows(self, *texts: str) -> None:
        """Wait until the page shows all these texts."""
        self.until(
            lambda: all(text in self.text() for text in texts), f"the page lacks one of {texts}"
        )

    def until(self, look: Callable[[], Any], failure: str, limit: float = 30.0) -> Any:
        deadline = time.monotonic() + limit
        while not (found := look()):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{failure} within {limit:g} s; it shows: {self.text()[-3000:]}; {self.log()}"
                )
            time.sleep(0.05)
        return found

    def appear(self, width: int, scheme: str) -> None:
        """Show the page at this width, ``light`` or ``dark``."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._cdp("Emulation.setEmulatedMedia", {"features": [feature]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.command("GET", "screenshot")))

    def log(self) -> list[str]:
        """What the browser reported since it was asked last: errors, and what its policy refused."""
        entries = self.command("POST", "se/log", {"type": "browser"})
        return [f"{one['level']}: {one['message']}" for one in entries]

    def count_work(self) -> None:
        """Begin to count the processor's time of the page's thread, for :meth:`work`."""
        self._cdp("Performance.enable", {"timeDomain": "threadTicks"})

    def work(self) -> float:
        """Seconds of a processor that the page's thread has used: waits for one are not in it."""
        metrics = self._cdp("Performance.getMetrics", {})["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def _cdp(self, name: str, parameters: dict[str, Any]) -> Any:
        return self.command("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})


def programs() -> tuple[str, str]:
    """The browser and its driver; skips the test where there are none."""
    found = [next(filter(None, map(shutil.which, names)), None) for names in PROGRAMS.values()]
    if found[0] is None or found[1] is None:
        pytest.skip("no browser: install chromium and chromium-driver to test the console")
    return found[0], found[1]


@contextlib.contextmanager
def running_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in ``folder``."""
    chromium, driver = programs()
    (port,) = own_ports(1)
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen([driver, f"--port={port}"], stdout=log, stderr=log)
    options = {
        "binary": chromium,
        "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--no-proxy-server", "--window-size=1440,900", f"--user-data-dir={folder / 'profile'}"],
    }  # fmt: skip
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False
        ) as session:
            _until_ready(session)
            made = session.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            value = made.json()["value"]
            assert made.status_code == 200, value
            path = f"/session/{value['sessionId']}"
            try:
                yield Browser(session, path)
            finally:
                session.delete(path)
    finally:
        process.terminate()
        process.wait(30)


def _until_ready(session: httpx.Client, limit: float = 30.0) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if session.get("/status").json()["value"]["ready"]:
                return
        time.sleep(0.05)
    raise AssertionError(f"the browser's driver was not ready within {limit:g} s")
