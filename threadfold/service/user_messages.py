"""What an end user may append: what a user says, and nothing else."""

from __future__ import annotations

import re

from projections.errors import Forbidden, InvalidEvent
from projections.names import one_line

FIELDS = frozenset({"type", "conversation", "role", "content", "id"})
PARTS = frozenset({"text", "image_url", "file"})
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_message(flat: object, where: str) -> None:
    """Check that an end user may append this flat event.

    An id must be a UUID. Else a user could take the id of a tenant's event that is to come, which
    would then be a duplicate.

    Raises:
        Forbidden: it is no message of the role user.
        InvalidEvent: it has a field, a part or an id that an end user may not give.
    """
    if not isinstance(flat, dict):
        raise InvalidEvent(f"{where}: expected an object")
    if flat.get("type") != "message" or flat.get("role") != "user":
        raise Forbidden(f"{where}: an end user appends messages of the role user only")
    for field in flat:
        if field not in FIELDS:
            raise InvalidEvent(
                f"{where}: field {one_line(field)}: an end user gives role, content and id only"
            )
    content = flat.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in PARTS:
            raise InvalidEvent(
                f"{where}: field content: an end user's parts are {', '.join(sorted(PARTS))}"
            )
    id_ = flat.get("id")
    if id_ is not None and not (isinstance(id_, str) and _UUID.fullmatch(id_)):
        raise InvalidEvent(f"{where}: field id: an end user's id is a UUID in lower case")
