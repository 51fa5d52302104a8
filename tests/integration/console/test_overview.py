"""In a browser: what the overview says of the last hour and of today, to an operator and to a tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from projections.redis.daily_counts import DailyCounts
from projections.redis.hour_rings import HourRings
from streams.compaction.summarizers.budgets import Budgets, Spending
from streams.settings.quotas import DEFAULT_SCOPES
from tests.support.browser import Browser
from tests.support.console_traffic import append, talk
from tests.support.console_world import World, check_looks, rows
from threadfold.gateway.last_hour import EVERY, MINUTE, PLATFORM, ring_of

pytestmark = pytest.mark.long
LIMIT = 90.0
"""Seconds for figures that come every 10 s, on a slow machine."""


def filled(world: World, owner: str, every: int, figures: Sequence[float]) -> None:
    """Let an hour begin with 30 minutes of these figures, as after gateways that ran so long."""

    async def fill() -> None:
        rings = HourRings(world.settings.redis, world.settings.topic_prefix, every)
        first = (await rings.read(owner)).first
        for slot in range(first + 2, first + 1800 // every):
            await rings.put(owner, slot, b"", figures)
        await rings.close()

    asyncio.run(fill())


def spend(world: World, tenant: str, spent: Spending) -> None:
    """What one worker spends that ends afterwards."""

    async def call() -> None:
        counts = DailyCounts(world.settings.redis, world.settings.topic_prefix)
        budgets = Budgets(counts)
        await budgets.settle(await budgets.reserve(tenant, spent), spent)
        await counts.close()

    asyncio.run(call())


def drawn(browser: Browser, title: str) -> str:
    """What a plot says of itself; nothing while it is not there."""
    label = browser.run(
        "return document.querySelector(`.plot svg[aria-label^='${arguments[0]}']`)?.ariaLabel ?? ''",
        title,
    )
    return str(label)


def test_the_overview_says_what_workers_do_and_draws_what_they_did(world: World) -> None:
    browser = world.sign_in()
    world.show("overview").shows("Requests / s", "1 worker reports", "extractive")
    browser.until(
        lambda: re.search(r": [1-9]|: 0\.\d* now", drawn(browser, "Requests")),
        "no request is counted",
        LIMIT,
    )
    shape = "return document.querySelectorAll('.plot path')[1].getAttribute('d')"
    assert browser.run(shape).startswith("M")
    plots = browser.run(
        "return [...document.querySelectorAll('.plot span')].map((e) => e.innerText)"
    )
    assert {
        "Events folded / s",
        "Seconds behind, worst partition",
        "Dead letters of this hour",
    } <= set(plots)
    browser.shows("wait to be made", "Model cost of summaries today")
    folded = [str(number) for number in range(world.settings.partitions)]
    browser.until(
        lambda: [row[0] for row in rows(browser, "Partitions") if row[4] == "folding"] == folded,
        "a partition is not folded",
    )
    for _, *figures, _ in rows(browser, "Partitions"):
        assert len(figures) == 3 and all(float(figure) >= 0 for figure in figures)
    compactions = rows(browser, "Compactions by reason and outcome")
    assert ["budget", "extractive", "made"] in [row[:3] for row in compactions]


def test_the_last_hour_is_there_when_the_page_is_opened_and_when_it_is_loaded_again(
    world: World, tmp_path: Path
) -> None:
    filled(world, PLATFORM, EVERY, [4_000, 777, 12.5, 6, 2])
    browser = world.sign_in()
    for _ in range(2):
        world.show("overview").shows("Events folded / s")
        browser.until(lambda: "4,000 at most" in drawn(browser, "Events folded"), "no past events")
        assert "777 at most" in drawn(browser, "Events behind")
        assert "13 at most" in drawn(browser, "Seconds behind")
        of_an_hour = drawn(browser, "Dead letters of this hour")
        assert int(of_an_hour.split(": ")[1].split()[0].replace(",", "")) >= 2 * 178
        path = browser.run("return document.querySelector('.plot path').getAttribute('d')")
        assert path.count("L") >= 170, "half an hour of points"
        browser.run("location.reload()")
    browser.shows("Events folded / s")
    check_looks(browser, tmp_path, "operator")
    assert browser.log() == []


def test_an_operator_sees_what_models_cost_today_of_all_tenants_and_a_tenant_its_own(
    world: World,
) -> None:
    spend(world, "acme", Spending(41_000, 0.5))
    spend(world, "rival", Spending(70_000, 0.75))
    browser = world.sign_in()
    world.show("overview").shows("Model cost since 00:00 UTC", "1.25", "111,000")
    assert rows(browser, "Tenants whose summaries use most today") == [
        ["rival", "70,000", "0.75"],
        ["acme", "41,000", "0.50"],
    ]
    browser = world.sign_in(world.rival_key)
    browser.shows("Model cost of summaries today", "0.75")
    assert "acme" not in browser.text() and "1.25" not in browser.text()


def test_a_tenant_sees_its_own_hour_and_how_much_of_its_quotas_it_uses(
    world: World, tmp_path: Path
) -> None:
    quota = {"requests_per_second": 5, "events_per_second": 2, "streams": 7}
    body = {"name": "limited", "quota": quota, "scopes": list(DEFAULT_SCOPES)}
    key = world.acme.post("/v1/tenants", json=body).raise_for_status().json()["key"]
    filled(world, PLATFORM, EVERY, [4_000, 777, 12.5, 6, 2])
    filled(world, ring_of("acme"), MINUTE, [60 * 999, 0, 0, 0])
    filled(world, ring_of("limited"), MINUTE, [60 * 4, 60, 321, 1])
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=world.url, headers=headers, timeout=60, trust_env=False) as own:
        append(own, "some", talk(1))
    browser = world.sign_in(key)
    browser.until(lambda: "4 at most" in drawn(browser, "Requests / s"), "its hour is not drawn")
    assert "321 at most" in drawn(browser, "Tokens appended")
    label = "Your quotas, and what was used in the last minute"

    def used() -> list[list[str]]:
        return rows(browser, label)

    browser.until(lambda: used()[1][2][:4] not in ("0 of", "unkn"), "nothing is used", LIMIT)
    (requests, events, tokens, rollbacks) = used()
    assert requests[:2] == ["requests per second", "5"]
    assert re.fullmatch(r"0\.\d\d of 5 \(\d+ %\)", requests[2])
    assert events[1] == "2" and re.fullmatch(r"0\.\d\d of 2 \(\d+ %\)", events[2])
    assert tokens[1] == "no limit" and float(tokens[2].replace(",", "")) > 0
    assert rollbacks == ["rollbacks per minute", "no limit", "0"]
    browser.shows("streams 7")
    assert "999" not in browser.text() and "4,000" not in browser.text(), "of others"
    check_looks(browser, tmp_path, "tenant")
    assert browser.log() == []
