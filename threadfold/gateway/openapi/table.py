"""All operations, by method and path. Those of routes that an application does not have are left
out of its document.
"""

from __future__ import annotations

from threadfold.gateway.openapi import appending, erasing, reading, service, tenants, turns
from threadfold.gateway.openapi.operation import Table

TABLE: Table = {
    **appending.OPERATIONS,
    **reading.OPERATIONS,
    **turns.OPERATIONS,
    **erasing.OPERATIONS,
    **tenants.OPERATIONS,
    **service.OPERATIONS,
}
