"""Which producer takes which list."""

from __future__ import annotations

import base64
import os

import pytest

from projections.events.validation import make_record
from projections.names import Key
from streams.log.appenders import LARGE, is_media

IMAGE = "data:image/png;base64," + base64.b64encode(os.urandom(LARGE)).decode()


@pytest.mark.parametrize(
    ("content", "is_one"),
    [
        ([{"type": "image_url", "image_url": {"url": IMAGE}}], True),
        ([{"type": "image_url", "image_url": {"url": IMAGE[: LARGE // 2]}}], False),
        ("word " * LARGE, False),
    ],
    ids=["image", "small image", "text"],
)
def test_a_large_image_is_not_compressed_and_text_is(content: object, is_one: bool) -> None:
    flat = {"type": "message", "role": "user", "content": content}
    record = make_record(Key("acme", "c"), flat, where="e", now="2026-01-01T00:00:00Z", new_id="e")
    assert is_media(record.value) is is_one
