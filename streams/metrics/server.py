"""A worker's ``GET /metrics``, on a port of its own."""

from __future__ import annotations

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from projections.errors import InvalidSettings
from streams.metrics.metrics import Metrics


class MetricsServer:
    """Serves one process's metrics; needs no key, so keep its port to yourself."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen; returns the address. Raises InvalidSettings where the port cannot be used."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            raise InvalidSettings(
                f"metrics cannot be served on port {port} of {host}"
                f" ({(error.strerror or str(error)).lower()}): choose another with --metrics-port"
            ) from None
        return f"http://{host}:{self._runner.addresses[0][1]}/metrics"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        await self._metrics.prepare()
        return web.Response(
            body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
