"""The operations that erase."""

from __future__ import annotations

from typing import Any

from threadfold.gateway.openapi.appending import CONVERSATION, C
from threadfold.gateway.openapi.components import TEXT, array, record
from threadfold.gateway.openapi.operation import Answer, Operation, Table, ref

_RECEIPT: dict[str, Any] = {"conversation": CONVERSATION}

OPERATIONS: Table = {
    ("DELETE", C): Operation(
        "Erasure",
        "Erase a conversation",
        "erase",
        {200: Answer(ref("Receipt"), _RECEIPT, "The receipt: what becomes of each store, and until when.")},
        problems=(404, 409),
        parameters={"conversation": CONVERSATION},
    ),
    ("DELETE", "/v1/users/{user}"): Operation(
        "Erasure",
        "Erase a user's conversations",
        "erase",
        {
            200: Answer(
                record({"user": TEXT, "conversations": array(ref("Receipt"))}),
                {"user": "u-7", "conversations": [_RECEIPT]},
                "A receipt for each conversation that was opened with this `user`.",
            )
        },
        problems=(404, 409),
        parameters={"user": "u-7"},
    ),
}
