"""The chat page of the examples in a real browser, against a real gateway on another origin."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest
from aiohttp import web

from streams.settings.settings import Settings
from tests.support.browser import browser_page
from tests.support.cut_proxy import cut_proxy
from tests.support.platform import SUMMARIZING, Platform, running_platform
from threadfold_client import AsyncClient

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]


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


def fill(form: str, **fields: str) -> str:
    return f"""(() => {{
        const form = document.getElementById({json.dumps(form)});
        for (const [name, value] of Object.entries({json.dumps(fields)})) form[name].value = value;
        form.requestSubmit();
    }})()"""


def shows(kind: str, text: str, count: int = 1) -> str:
    return f"""[...document.querySelectorAll({json.dumps(kind)})]
        .filter((one) => one.textContent === {json.dumps(text)}).length === {count}"""


async def test_a_user_reads_writes_and_stays_connected(
    platform: Platform, pages: str, tmp_path: Path
) -> None:
    name = f"page-{uuid4().hex[:12]}"
    async with (
        AsyncClient(platform.url, platform.key) as server,
        cut_proxy(platform.url) as proxy,
        browser_page(tmp_path) as page,
    ):
        opened = {"type": "conversation.opened", "user": "ann"}
        first = {"type": "message", "role": "assistant", "content": "What can I do for you?"}
        await server.append(name, [opened, first], wait="applied")
        await page.open(f"{pages}/examples/chat.html")
        given = {"url": proxy.url, "conversation": name}
        await page.run(fill("enter", **given, token="wrong"))
        await page.until("/token|key/.test(document.getElementById('state').textContent)")
        await page.run(fill("enter", **given, token=await token_of(platform, "bob")))
        await page.until("/not known/.test(document.getElementById('state').textContent)")
        await page.run(fill("enter", **given, token=await token_of(platform, "ann")))
        await page.until(shows(".assistant", "What can I do for you?"))

        await page.run(fill("say", text="Where is my order?"))
        await page.until(shows(".user", "Where is my order?"))
        proxy.cut()
        async with server.partial(name) as writer:
            await writer.write("It is in ")
            await page.until(shows(".draft", "It is in "))
            proxy.cut()
            await writer.write("Oslo.")
            await page.until(shows(".draft", "It is in Oslo."))
            await writer.finish()
        await page.until(shows(".assistant:not(.draft)", "It is in Oslo."))
        await page.until("document.querySelector('.draft') === null")
        proxy.cut()
        await page.run(fill("say", text="Thank you."))
        await page.until(shows(".user", "Thank you."))

        long = "The harvest was good, and the barns were full before the rain. " * 3
        said = [{"type": "message", "role": "user", "content": f"{n}: {long}"} for n in range(12)]
        await server.append(name, said, wait="applied")
        await page.until(shows(".user", f"11: {long}"))
        # A summary takes the place of what is old: the page shows the window.
        await page.until(shows(".user", "Where is my order?", 0))
        await page.until(shows(".user", f"11: {long}"))
        assert page.console == []
        await page.picture(tmp_path / "chat.png")
