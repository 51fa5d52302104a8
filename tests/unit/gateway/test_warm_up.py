"""What a gateway does before anybody can append to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from projections.events import encodings, tokenizer
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.gateway import create_gateway


async def test_the_tables_that_count_tokens_are_made_before_it_is_connected_and_not_by_the_first_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encodings.get_encoding.cache_clear()
    counted: list[object] = []

    def counting(texts: Sequence[str]) -> object:
        counted.append(tokenizer.count_all(texts))
        return counted[-1]

    monkeypatch.setattr("threadfold.gateway.app.count_all", counting)
    app = create_gateway(Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))
    async with app.router.lifespan_context(app):

        async def made() -> bool:
            return bool(counted)

        await until(made)
        assert app.state.connection.backend is None
