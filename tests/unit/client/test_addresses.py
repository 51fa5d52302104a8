"""With which addresses and keys a client is made."""

from __future__ import annotations

from typing import Any

import pytest

from threadfold_client import AsyncClient, Invalid


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080", "http://", "ftp://a", "http://a:99999", "http://a:0", "http://[::x",
     None, 5],
)  # fmt: skip
def test_an_address_to_which_nothing_can_be_sent_is_refused_at_once(url: Any) -> None:
    with pytest.raises(Invalid, match=r"url is .*: expected the gateway's address"):
        AsyncClient(url, "tf_key")


@pytest.mark.parametrize("key", ["tf_ü", "tf_a\nb", b"tf_key", 5])
def test_a_key_that_no_header_can_carry_is_refused_at_once(key: Any) -> None:
    with pytest.raises(Invalid, match="key has other characters") as caught:
        AsyncClient("http://localhost:8080", key)
    assert "tf_" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://a", "https://a.example:8443/", "http://[::1]:8080/base"])
async def test_addresses_of_gateways_are_accepted(url: str) -> None:
    await AsyncClient(url, "tf_key").close()
