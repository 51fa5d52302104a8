"""The long-term memory is searched by meaning: a real gateway, and a real endpoint of embeddings."""

from __future__ import annotations

import time
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.endpoints import EmbeddingsSettings
from streams.settings.settings import Settings
from tests.support.embeddings import WordVectors
from tests.support.model_server import ModelServer, model_server
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway

WORDS = WordVectors(synonyms={"tea": "drink", "beverage": "drink"})


async def means(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """Vectors in which a synonym is the same word; a curse is not taken."""
    if any("curse" in text for text in asked["input"]):
        return web.json_response({"error": {"code": "content_policy"}}, status=400)
    if any("slow" in text for text in asked["input"]):
        await server.stopping.wait()
    rows = [(await WORDS.embed([text], ""))[0].tolist() for text in asked["input"]]
    data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
    return web.json_response({"data": data, "usage": {"prompt_tokens": len(data)}})


@pytest.mark.long
async def test_a_saved_memory_is_found_by_its_meaning_beside_a_text_that_is_refused(
    settings: Settings,
) -> None:
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, {}), "generation/live": 1}
    )
    await control.ensure_tenant("acme")
    key = await control.add_key("acme", None)
    await control.stop()
    async with model_server(means) as server:
        endpoint = EmbeddingsSettings(base_url=server.url, model="m")
        own = msgspec.structs.replace(
            settings,
            embeddings={"small": endpoint},
            memory_embeddings="small",
            memory_model_seconds=1.0,
        )
        async with (
            running_worker(settings),
            serving(create_gateway(own)) as url,
            httpx.AsyncClient(
                base_url=url, timeout=60, headers={"Authorization": f"Bearer {key}"}
            ) as http,
        ):

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            async def found() -> dict[str, Any]:
                body = {"query": "which beverage", "user": "u-1", "kinds": ["record"]}
                answer = await http.post("/v1/memories/search", json=body)
                assert answer.status_code == 200, answer.text
                hits: dict[str, Any] = answer.json()
                return hits

            async def by_meaning() -> bool:
                hits = (await found())["results"]
                return bool(hits) and hits[0]["text"] == "likes green tea"

            await until(ready)
            saved = await http.post(
                "/v1/memories?wait=applied",
                json=[{"text": text, "user": "u-1"} for text in ("a curse", "likes green tea")],
            )
            assert saved.status_code == 200, saved.text
            await until(by_meaning)
            hits = await found()
            assert hits["results"][0]["channels"] == ["vectors"] and "vectors" not in hits["away"]
            metrics = (await http.get("/metrics")).text
            assert 'embedding_calls_total{endpoint="small",outcome="ok"}' in metrics
            assert 'embedding_calls_total{endpoint="small",outcome="input_refused"}' in metrics
            body = {"query": "slow green tea", "user": "u-1", "kinds": ["record"]}
            begun = time.monotonic()
            by_words = (await http.post("/v1/memories/search", json=body)).json()
            assert time.monotonic() - begun < 10, "an endpoint has 30 s for stored texts"
            assert "did not answer within" in by_words["away"]["vectors"]
            assert by_words["results"][0]["text"] == "likes green tea"
