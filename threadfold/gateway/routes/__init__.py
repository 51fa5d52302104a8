"""All routes of the gateway, each declared beside its handler."""

from __future__ import annotations

from threadfold.gateway.route_table import RouteTable
from threadfold.gateway.routes import (
    appending,
    erasure,
    event_streams,
    reading,
    service,
    tenants,
    turns,
)

TABLE = RouteTable(
    [
        *appending.routes,
        *turns.routes,
        *reading.routes,
        *event_streams.routes,
        *tenants.routes,
        *erasure.routes,
        *service.routes,
    ]
)

__all__ = ["TABLE"]
