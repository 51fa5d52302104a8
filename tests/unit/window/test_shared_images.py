"""Images that share what they have in common are those of their windows, byte for byte."""

from __future__ import annotations

import random

import pytest

from projections.events import types as events
from projections.fold.apply import Status, apply
from projections.fold.replay import apply_with_log
from projections.policy.policy import Rules
from projections.window.shared_images import SharedImages
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event, random_log


@pytest.mark.parametrize("seed", range(4))
def test_a_window_comes_back_from_its_image_whichever_others_were_taken_before(seed: int) -> None:
    log = random_log(seed, 400).log
    windows, window = [], Window(KEY, PARTITION, RULES)
    for i, (offset, event) in enumerate(log):
        apply_with_log(window, offset, event, log[:i])
        if i % 9 == 0:
            windows.append(window.copy())
    random.Random(seed).shuffle(windows)
    images = SharedImages()
    taken = [images.take(one) for one in windows]
    for one, image in zip(windows, taken, strict=True):
        assert image.window(KEY, PARTITION, RULES).image() == one.image()


def test_an_image_of_a_window_with_long_texts_and_many_ids_takes_few_bytes_of_its_own() -> None:
    images, window = SharedImages(), Window(KEY, PARTITION, Rules({"compaction": False}))
    sizes, texts = [], 0
    for n in range(1_500):
        event = make_event(events.Message("user", "long words " * 50), f"e{n}")
        assert apply(window, n, event).status is Status.APPLIED
        texts += 550
        if n % 10 == 0:
            sizes.append(images.take(window).size)
    assert max(sizes) < 6_000 and len(window.image()) > 60_000
    assert images.size < 1.5 * texts
