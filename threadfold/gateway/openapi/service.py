"""The operations that need no key: health, and the documents themselves."""

from __future__ import annotations

from threadfold.gateway.openapi.components import COUNT, OBJECT, TEXT, record
from threadfold.gateway.openapi.operation import Answer, Operation, Table

OPERATIONS: Table = {
    ("GET", "/healthz"): Operation(
        "Service",
        "Is it alive",
        None,
        {
            200: Answer(
                record({"status": {"const": "ok"}}), {"status": "ok"}, "The process is alive."
            )
        },
    ),
    ("GET", "/readyz"): Operation(
        "Service",
        "May it serve",
        None,
        {
            200: Answer(
                record({"status": {"const": "ready"}, "generation": COUNT, "partitions": COUNT}),
                {"status": "ready", "generation": 1, "partitions": 16},
                "Kafka, Redis and the live generation answer.",
            )
        },
        problems=(503,),
    ),
    ("GET", "/metrics"): Operation(
        "Service",
        "Metrics",
        None,
        {
            200: Answer(
                TEXT,
                "# TYPE threadfold_http_requests_total counter\n",
                "Prometheus' text format.",
                "text/plain",
            )
        },
    ),
    ("GET", "/asyncapi.json"): Operation(
        "Service",
        "The AsyncAPI document",
        None,
        {
            200: Answer(
                record({"asyncapi": TEXT, "channels": OBJECT}),
                {"asyncapi": "3.0.0", "channels": {}},
                "AsyncAPI 3.0.",
            )
        },
    ),
    ("GET", "/schemas/{name}.json"): Operation(
        "Service",
        "The JSON Schema of an event type",
        None,
        {
            200: Answer(
                record({"$schema": TEXT, "$id": TEXT}),
                {
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "$id": "urn:threadfold:schema:message:v1",
                },
                "`message` is the CloudEvent in the log, `message.flat` what is appended over"
                " HTTP.",
                "application/schema+json",
            )
        },
        problems=(404,),
        parameters={"name": "message"},
    ),
}
