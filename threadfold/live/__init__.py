"""Live streams: what is appended, summarised and said right now, to subscribers in this process and over HTTP."""

from threadfold.live.live import Live
from threadfold.live.sent import Sent

__all__ = ["Live", "Sent"]
