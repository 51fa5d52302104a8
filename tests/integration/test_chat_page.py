"""The chat page of the examples in a real browser, against a real gateway on another origin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest
from aiohttp import web

from streams.settings.settings import Settings
from tests.support.browser import Browser, running_browser
from tests.support.cut_proxy import cut_proxy
from tests.support.platform import SUMMARIZING, Platform, running_platform
from threadfold_client import AsyncClient

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
LONG_TALK = [
    {
        "type": "message",
        "role": "user",
        "content": f"{n}: {'The harvest was good, and the barns were full before the rain. ' * 3}",
    }
    for n in range(12)
]


@pytest.fixture(scope="module")
async def pages() -> AsyncIterator[str]:
    """The checkout's files on an origin of their own."""
    app = web.Application()
    app.router.add_static("/", ROOT)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture(scope="module")
async def platform(settings: Settings, pages: str) -> AsyncIterator[Platform]:
    allowed = msgspec.structs.replace(settings, cors_origins=pages)
    async with running_platform(allowed, SUMMARIZING) as running:
        yield running


async def token_of(platform: Platform, user: str) -> str:
    async with httpx.AsyncClient(base_url=platform.url, timeout=60) as http:
        answer = await http.post(
            "/v1/tokens",
            json={"user": user, "verbs": ["read", "stream", "append"]},
            headers={"Authorization": f"Bearer {platform.key}"},
        )
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["token"]
    return token


class ChatPage:
    """The page in a browser, which is asked in a thread: the gateway runs in this one."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def open(self, url: str) -> None:
        await asyncio.to_thread(self._browser.open, url)

    async def fill(self, button: str, **fields: str) -> None:
        """Write into fields by their labels, which must be empty, and press a button."""
        for label, text in fields.items():
            await asyncio.to_thread(self._browser.write, label, text)
        await asyncio.to_thread(self._browser.button, button)

    async def says(self, *texts: str) -> None:
        """Wait until the page shows these texts."""
        await asyncio.to_thread(self._browser.shows, *texts)

    async def shows(self, kind: str, text: str, count: int = 1) -> None:
        """Wait until so many messages of a kind have exactly this text."""
        script = """return [...document.querySelectorAll(arguments[0])]
            .filter((one) => one.textContent === arguments[1]).length"""

        def look() -> bool:
            return bool(self._browser.run(script, kind, text) == count)

        await asyncio.to_thread(self._browser.until, look, f"not {count} {kind} of {text!r}", 60)

    async def empty(self, label: str) -> None:
        """Empty a field."""
        script = "document.querySelector(`[name=${arguments[0]}]`).value = ''"
        await asyncio.to_thread(self._browser.run, script, label)


async def test_a_user_reads_writes_and_stays_connected(
    platform: Platform, pages: str, tmp_path: Path
) -> None:
    name = f"page-{uuid4().hex[:12]}"
    with running_browser(tmp_path) as browser:
        async with (
            AsyncClient(platform.url, platform.key) as server,
            cut_proxy(platform.url) as proxy,
        ):
            opened = {"type": "conversation.opened", "user": "ann"}
            first = {"type": "message", "role": "assistant", "content": "What can I do for you?"}
            await server.append(name, [opened, first], wait="applied")
            page = ChatPage(browser)
            await page.open(f"{pages}/examples/chat.html")
            await page.empty("url")
            await page.fill("Sign in", Gateway=proxy.url, Conversation=name, Token="wrong")
            await page.says("key")
            await page.fill("Sign in", Token=await token_of(platform, "bob"))
            await page.says("not known")
            await page.fill("Sign in", Token=await token_of(platform, "ann"))
            await page.shows(".assistant", "What can I do for you?")

            await page.fill("Send", Message="Where is my order?")
            await page.shows(".user", "Where is my order?")
            proxy.cut()
            async with server.partial(name) as writer:
                await writer.write("It is in ")
                await page.shows(".draft", "It is in ")
                proxy.cut()
                await writer.write("Oslo.")
                await page.shows(".draft", "It is in Oslo.")
                await writer.finish()
            await page.shows(".assistant:not(.draft)", "It is in Oslo.")
            await page.shows(".draft", "It is in Oslo.", 0)
            proxy.cut()
            await page.fill("Send", Message="Thank you.")
            await page.shows(".user", "Thank you.")

            await server.append(name, LONG_TALK, wait="applied")
            await page.shows(".user", LONG_TALK[-1]["content"])
            # A summary takes the place of what is old: the page shows the window.
            await page.shows(".user", "Where is my order?", 0)
            await page.shows(".user", LONG_TALK[-1]["content"])
            await page.says("tokens in the window")
