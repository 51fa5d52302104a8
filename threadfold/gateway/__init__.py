"""The HTTP gateway: how services that do not speak Kafka append to conversations and read their
windows.
"""

from threadfold.gateway.app import create_gateway
from threadfold.gateway.server import serve

__all__ = ["create_gateway", "serve"]
