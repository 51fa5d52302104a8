"""A topic's id: the UUID that Kafka gives to each topic it makes (since 2.8), so that one made anew
under the same name is another.

aiokafka speaks Metadata up to version 5, which has names only; version 10 is the first that tells
ids (https://kafka.apache.org/protocol#The_Messages_Metadata).
"""

from __future__ import annotations

import logging
from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

logger = logging.getLogger(__name__)

_NO_ID = UUID(int=0)


class _Uuid(AbstractType):  # type: ignore[misc]
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


class _Response(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Struct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Ask(Request[_Struct]):  # type: ignore[misc]
    """Asks for one topic by its name."""

    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_Struct]) -> _Struct:
        """The request as it is sent; nothing is made by asking."""
        return request_struct_class([(_NO_ID, self._topic, {})], False, False, False, {})


def refresh(consumer: AIOKafkaConsumer, topic: str, *, changed: bool) -> None:
    """Have a consumer ask for the brokers' metadata at once if a topic changed, or if it does not
    know the topic.

    By itself it asks when what it knows is minutes old, and assigns nothing of such a topic before.
    """
    client: Any = consumer._client
    if changed or topic not in client.cluster.topics():
        client.force_metadata_update()


async def topic_id(client: Any, topic: str) -> UUID | None:
    """The id of a topic as one of the brokers knows it.

    Args:
        client: a consumer or an admin client that is started.

    Returns:
        None where the topic does not exist, or the brokers are too old to have ids.

    Raises:
        KafkaError: no answer.
    """
    connections = client._client
    node = connections.get_random_node()
    if node is None:
        return None
    try:
        answer = await connections.send(node, _Ask(topic))
    except (IncompatibleBrokerVersion, NotImplementedError) as error:
        logger.debug("topic ids are not known to broker %s: %s", node, error)
        return None
    for code, _, found, *_ in answer.topics:
        if code == 0 and found != _NO_ID:
            return UUID(bytes=found.bytes)
    return None
