"""The page of end users names the routes that their tokens open, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from threadfold.gateway.routes import TABLE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "end-users.md"
OF_A_CONVERSATION = "/v1/conversations/{c}"


def named() -> set[tuple[str, str]]:
    """The routes of the page's first table: a method stands before the paths that have it, and a
    path that does not begin with ``/v1`` goes on from the conversation named before.
    """
    table = PAGE.read_text().partition("| verb |")[2].partition("\n\n")[0]
    found = set()
    method = ""
    for code in re.findall(r"`((?:[A-Z]+ )?/[^`]*)`", table):
        new, _, path = code.rpartition(" ")
        method = new or method
        found.add((method, path if path.startswith("/v1") else OF_A_CONVERSATION + path))
    return found


def test_the_table_has_the_routes_that_a_token_of_an_end_user_opens() -> None:
    opened = {
        (route.method, route.template.replace("{conversation}", "{c}"))
        for route in TABLE
        if route.end_users
    }
    assert named() == opened
