"""In a browser: people sign in with a signed token (JWT) of the deployment's issuer."""

from __future__ import annotations

import time

import pytest

from tests.support.browser import Browser
from tests.support.console_traffic import append
from tests.support.console_world import World
from tests.support.tokens import Signer

pytestmark = pytest.mark.long


def views(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('nav a')].map((a) => a.innerText)"
    )
    return found


def test_a_signed_token_opens_what_its_scopes_allow_and_its_tenant_has(world: World) -> None:
    browser = world.sign_in(world.signer.token(scope="openid read subscribe"))
    browser.shows("acme")
    assert views(browser) == ["Overview", "Conversations", "Approvals", "Care"]
    world.show_live("conversations/journey").shows("Book the first one.")
    said = {"type": "message", "role": "user", "content": "Said while it is watched."}
    append(world.acme, "journey", [said])
    browser.shows("Said while it is watched.")
    world.show("approvals").shows("Waits for an approval")
    assert "Reject" not in browser.text(), "the token may not append"
    assert browser.log() == []
    rival = world.signer.token(tenant="rival", scope="read subscribe")
    browser = world.sign_in(rival)
    browser.shows("rival")
    world.show("conversations").shows("No conversation matches.")
    world.show("conversations/journey").shows("is not known")


def test_a_token_that_answers_approvals_may_append(world: World) -> None:
    world.sign_in(world.signer.token(scope="read append"))
    world.show("approvals").shows("Waits for an approval", "Reject")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda one: one.token(exp=int(time.time()) - 300), "expired"),
        (lambda _: Signer("console").token(), "signature"),
        (lambda one: one.token(tenant=None), "tenant"),
    ],
)
def test_a_token_that_does_not_hold_is_refused_with_its_reason_and_not_kept(
    world: World,
    made,  # type: ignore[no-untyped-def]
    why: str,
) -> None:
    browser = world.sign_in()
    browser.button("Sign out")
    browser.write("Key", made(world.signer))
    browser.button("Sign in")
    browser.until(lambda: "(401)" in browser.text(), "it is not refused")
    assert why in browser.text(), browser.text()
    assert browser.run("return sessionStorage.length + localStorage.length") == 0
    assert "Sign out" not in browser.text()
