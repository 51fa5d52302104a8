"""Images and files as Anthropic's Messages take them; what that provider would refuse a whole
request for becomes None here.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)(?:;[a-z]+=[^;,]*)*;base64,", re.IGNORECASE)
_LONGEST_BEGIN = 1_000
"""Characters of a data URL before its data: each parameter takes memory while it is read."""
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_TEXT = "text/plain"


def image_block(url: str) -> dict[str, Any] | None:
    """An ``image`` block of a web address, or of a data URL in one of the four types that are
    taken; None for any other.
    """
    data = _from_data_url(url)
    if data is not None:
        return (
            {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
            if data[0] in _IMAGES
            else None
        )
    return {"type": "image", "source": {"type": "url", "url": url}} if _is_web(url) else None


def document_block(file: dict[str, Any]) -> dict[str, Any] | None:
    """A ``document`` block of a file given by its bytes (a PDF, or plain text), its id or a web
    address; None for any other.
    """
    source = _source(file)
    name = file.get("filename")
    if source is None:
        return None
    return {
        "type": "document",
        "source": source,
        **({"title": name} if isinstance(name, str) and name.strip() else {}),
    }


def _source(file: dict[str, Any]) -> dict[str, Any] | None:
    data = _from_data_url(file.get("file_data"))
    if data is not None and data[0] == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": data[1]}
    if data is not None and data[0] == _TEXT:
        # Base64 is for PDFs alone: text goes as text.
        text = _decoded(data[1])
        return {"type": "text", "media_type": _TEXT, "data": text} if text.strip() else None
    if isinstance(file.get("file_id"), str) and file["file_id"]:
        return {"type": "file", "file_id": file["file_id"]}
    if _is_web(file.get("file_url")):
        return {"type": "url", "url": file["file_url"]}
    return None


def _from_data_url(url: object) -> tuple[str, str] | None:
    """The media type, in lower case, and the base64 of a data URL that holds something."""
    if not isinstance(url, str) or not (match := _DATA_URL.match(url, 0, _LONGEST_BEGIN)):
        return None
    data = url[match.end() :]
    return (match[1].lower(), data) if data else None


def _decoded(data: str) -> str:
    """The text that was given in base64; empty where it is none."""
    try:
        return b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _is_web(url: object) -> bool:
    return isinstance(url, str) and url.startswith(("https://", "http://"))
