"""A page in a headless Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-port=0",
)


class Page:
    """One page; ``console`` has what it wrote there, errors too."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.console: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def open(self, url: str) -> None:
        """Go to a page; returns once it is loaded."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, condition: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.run(condition):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            pytest.fail(f"never true: {condition}\n{shown}\n{self.console}")

    async def picture(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        import base64

        found = await self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(found["data"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        number = next(self._numbers)
        coming = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(30):
            answer = await coming
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def close(self) -> None:
        """Let the page go."""
        await self._socket.close()
        await self._reading

    async def _read(self) -> None:
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            elif found["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                self.console.append(json.dumps(found["params"])[:500])


@asynccontextmanager
async def browser_page(folder: Path) -> AsyncIterator[Page]:
    """A page of a new browser, whose profile is in ``folder``. Without a browser the test is
    skipped.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"there is no browser on the PATH: none of {', '.join(PROGRAMS)}")
    process = await asyncio.create_subprocess_exec(
        program,
        *OPTIONS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await _address(process)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://{address}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            socket = await http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
            page = Page(socket)
            try:
                yield page
            finally:
                await page.close()
    finally:
        process.terminate()
        await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"DevTools listening on ws://([^/]+)/", line):
                return found[1]
    raise AssertionError("the browser ended before it listened")
