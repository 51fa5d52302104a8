"""Live streams: what is appended, summarised and said right now, to subscribers in this process and
over HTTP.
"""

from threadfold.streaming.live import Live
from threadfold.streaming.sse_event import SseEvent

__all__ = ["Live", "SseEvent"]
