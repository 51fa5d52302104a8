"""A user whom a URL cannot carry is refused by name: "not found" would say that nothing is theirs."""

from __future__ import annotations

import pytest

from threadfold_client import AsyncClient
from threadfold_client.errors import Invalid


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (".", "cannot be named in a URL"),
        ("..", "cannot be named in a URL"),
        ("", "expected 1 or more characters"),
    ],
)
async def test_erasing_a_user_that_a_url_cannot_carry_is_refused(user: str, why: str) -> None:
    async with AsyncClient("http://127.0.0.1:1", "key", retries=1) as client:
        with pytest.raises(Invalid, match=why):
            await client.erase_user(user)
