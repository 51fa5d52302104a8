"""The clients of the full package: those of ``threadfold_client``, with ``direct`` for services
that reach Kafka and Redis themselves.

Everything else is in ``threadfold_client``; its names work here until 0.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import threadfold_client
from threadfold.renamed import renamed
from threadfold_client.aio import TIMEOUT
from threadfold_client.calls import Retries

if TYPE_CHECKING:
    from streams.settings.settings import Settings


class AsyncClient(threadfold_client.AsyncClient):
    """``threadfold_client.AsyncClient`` with :meth:`direct`."""

    @classmethod
    def direct(
        cls,
        settings: Settings,
        tenant: str,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | int = Retries(),
    ) -> Self:
        """A client without a gateway, for services that may reach Kafka and Redis themselves; it
        acts for the tenant named.
        """
        from threadfold.direct import DirectTransport

        return cls.over(DirectTransport(settings, tenant, timeout=timeout), retries=retries)


class Client(threadfold_client.Client):
    """``threadfold_client.Client`` with :meth:`direct`."""

    @classmethod
    def direct(
        cls,
        settings: Settings,
        tenant: str,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | int = Retries(),
    ) -> Self:
        """A client without a gateway; see :meth:`AsyncClient.direct`."""
        return cls.of(AsyncClient.direct(settings, tenant, timeout=timeout, retries=retries))


def __getattr__(name: str) -> Any:
    return renamed(
        __name__,
        name,
        {same: getattr(threadfold_client, same) for same in threadfold_client.__all__},
    )
