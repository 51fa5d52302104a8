"""Which answers are made beside others' requests."""

from __future__ import annotations

from msgspec import Raw

from streams.runtime.keyed_limit import LARGE, KeyedLimit
from threadfold.gateway.routes.common import MANY_VALUES, answer, answer_beside, text_size


def test_an_answer_of_many_small_values_is_a_large_one_and_not_all_of_it_is_looked_at() -> None:
    few = {"tools": [{"name": "x" * 100}] * (MANY_VALUES // 2 - 2)}
    assert text_size(few) == 100 * (MANY_VALUES // 2 - 2) < LARGE
    assert text_size([1] * MANY_VALUES) > LARGE
    endless: list[object] = []
    endless.append(endless)
    assert text_size(endless) > LARGE


def test_an_answer_is_as_large_as_its_texts_and_what_is_json_already() -> None:
    assert text_size({"a": "xyz", "b": [Raw(b"12345"), None, 3, "é"]}) == 9


async def test_an_answer_made_beside_others_is_the_same() -> None:
    for document in (
        {"events": [{"id": "é", "n": [1, 2.5]}, {}], "next_before": None, "raw": Raw(b"[1]")},
        {"none": [], "text": "x" * LARGE},
        {},
        [1, "two"],
        None,
    ):
        made = await answer_beside(KeyedLimit(1), "acme", document, 200)
        assert (made.body, made.status_code) == (answer(document).body, 200)
