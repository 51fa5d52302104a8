"""The client: conversations over HTTP, or straight from Kafka and Redis, asynchronous and
synchronous, with the same interface.
"""

from threadfold.client.aio import AsyncClient
from threadfold.client.calls import Call, Retries, Transport
from threadfold.client.errors import (
    ClientClosed,
    ClientError,
    Conflict,
    Fault,
    Gone,
    Invalid,
    Malformed,
    NotAllowed,
    NotFound,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from threadfold.client.models import (
    Appended,
    AppendedEvent,
    Context,
    HistoryPage,
    StreamEvent,
    TurnInfo,
)
from threadfold.client.partial import PartialWriter
from threadfold.client.sse import ServerSent, SseParser
from threadfold.client.subscription import Subscription
from threadfold.client.sync import Client
from threadfold.client.turn import Turn

__all__ = [
    "Appended",
    "AppendedEvent",
    "AsyncClient",
    "Call",
    "Client",
    "ClientClosed",
    "ClientError",
    "Conflict",
    "Context",
    "Fault",
    "Gone",
    "HistoryPage",
    "Invalid",
    "Malformed",
    "NotAllowed",
    "NotFound",
    "PartialWriter",
    "RateLimited",
    "Retries",
    "ServerSent",
    "SseParser",
    "StreamEvent",
    "Subscription",
    "TooLarge",
    "Transport",
    "Turn",
    "TurnInfo",
    "Unauthenticated",
    "Unavailable",
]
