"""Live streams: what is appended, summarised and said right now, to subscribers in this process and over HTTP."""

from threadfold.streaming.live import Live
from threadfold.streaming.sent import Sent

__all__ = ["Live", "Sent"]
