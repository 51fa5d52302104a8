"""All routes of the gateway, each declared beside its handler."""

from __future__ import annotations

from threadfold.gateway.route_table import RouteTable
from threadfold.gateway.routes import (
    append,
    console,
    erasure,
    event_streams,
    memories,
    operations,
    read,
    reprojection,
    service,
    side_by_side,
    tenants,
    tokens,
    turns,
    windows,
)

TABLE = RouteTable(
    [
        *append.routes,
        *turns.routes,
        *read.routes,
        *windows.routes,
        *event_streams.routes,
        *memories.routes,
        *tokens.routes,
        *tenants.routes,
        *erasure.routes,
        *reprojection.routes,
        *side_by_side.routes,
        *operations.routes,
        *service.routes,
        *console.routes,
    ]
)

__all__ = ["TABLE"]
