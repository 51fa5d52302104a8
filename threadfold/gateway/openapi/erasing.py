"""The operations that erase."""

from __future__ import annotations

from typing import Any

from threadfold.gateway.openapi.appending import CONVERSATION, C
from threadfold.gateway.openapi.components import TEXT, array, record
from threadfold.gateway.openapi.operation import Answer, Operation, Table, ref

_RECEIPT: dict[str, Any] = {
    "conversation": CONVERSATION,
    "position": "3-61",
    "erased_at": "2026-01-31T12:00:00.000Z",
    "log": "opaque",
    "stores": {
        "log": {
            "state": "opaque",
            "deadline": None,
            "how": "payloads are sealed with a key that is gone",
        },
        "keys": {
            "state": "deleted",
            "deadline": "2026-02-01T13:00:00.000Z",
            "how": "void at once; the broker drops the wrapped keys by then",
        },
        "windows": {
            "state": "deleted",
            "deadline": None,
            "how": "in all generations; what is left is that it was erased",
        },
    },
}

OPERATIONS: Table = {
    ("DELETE", C): Operation(
        "Erasure",
        "Erase a conversation",
        "erase",
        {
            200: Answer(
                ref("Receipt"), _RECEIPT, "The receipt: what becomes of each store, and until when."
            )
        },
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
