"""The client of threadfold: conversations over HTTP, asynchronous and synchronous, with the same
methods and errors.
"""

from threadfold_client.aio import AsyncClient
from threadfold_client.calls import Call, Retries, Transport
from threadfold_client.errors import (
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
from threadfold_client.models import (
    Appended,
    AppendedEvent,
    Context,
    HistoryPage,
    LiveTurn,
    MintedToken,
    StreamEvent,
    TurnInfo,
    Turns,
)
from threadfold_client.partial import PartialWriter
from threadfold_client.sse import ServerSent, SseParser
from threadfold_client.subscription import Subscription
from threadfold_client.sync import Client, SyncSubscription, SyncTurn, SyncWriter
from threadfold_client.turn import Turn

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
    "LiveTurn",
    "Malformed",
    "MintedToken",
    "NotAllowed",
    "NotFound",
    "PartialWriter",
    "RateLimited",
    "Retries",
    "ServerSent",
    "SseParser",
    "StreamEvent",
    "Subscription",
    "SyncSubscription",
    "SyncTurn",
    "SyncWriter",
    "TooLarge",
    "Transport",
    "Turn",
    "TurnInfo",
    "Turns",
    "Unauthenticated",
    "Unavailable",
]
