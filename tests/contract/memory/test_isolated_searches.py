"""What is of others is left out before anything is ranked: however many of theirs fit better, and
however many versions of it lie in the folder, the own records are found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from projections.memory.news import Fact
from projections.names import users_log
from streams.memory.store import Filter, LocalStore, NewVector
from streams.memory.store_folder import LANCE
from tests.support.local_stores import stores_of
from tests.support.memories import saved

OTHERS = 450
"""More than any search ranks at once."""
ANN = users_log("acme", "ann")


def told(user: str, number: int, text: str) -> Fact:
    log = users_log("acme", user)
    return Fact(log, number, number, (), saved(log, text, user=user))


def test_the_own_records_are_found_however_many_of_others_fit_better(
    local: Callable[..., LocalStore],
) -> None:
    store = local()
    own = told("ann", 1, "Once there was some tea beside all of the other things on the table.")
    store.apply([*(told("bob", n, f"Tea {n}.") for n in range(1, OTHERS)), own], {})
    rows = store.vectors.missing("m", 0, OTHERS + 1)
    assert len(rows) == OTHERS
    near, far = np.eye(8, dtype=np.float32)[:2]
    owner = {number: "ann" if "Once" in text else "bob" for number, _, text in rows}
    new = [NewVector(n, "acme", who, near if who == "bob" else far) for n, who in owner.items()]
    store.vectors.add("m", new)
    store.vectors.use("m")
    for user, count in (("ann", 1), ("bob", 5)):
        only = Filter("acme", user)
        assert len(store.search(only, ["tea"], 5)) == count
        assert len(store.vectors.nearest(only, near, 5)) == count
    assert [hit.record.scope.user for hit in store.search(Filter("acme", "ann"), ["tea"], 5)] == [
        "ann"
    ]
    store.close()


def test_versions_of_lancedb_are_put_together_and_the_old_ones_deleted(tmp_path: Path) -> None:
    path = tmp_path / f"memories{LANCE}"
    store = stores_of(LANCE)(path)

    def versions() -> int:
        return sum(1 for folder in path.rglob("_versions") for _ in folder.iterdir())

    most = 0
    for n in range(1, 131):
        store.apply([told("ann", n, f"Tea {n}.")], {0: n})
        most = max(most, versions())
    # Each of 130 batches is a commit. 50 are kept, and a few of the work on them.
    assert most < 80
    assert len(store.search(Filter("acme", "ann"), ["tea"], 200)) == 130
    store.close()
    again = stores_of(LANCE)(path)
    assert len(again.search(Filter("acme", "ann"), ["tea"], 200)) == 130
    again.close()
