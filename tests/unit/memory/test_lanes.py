"""The order in which records of many tenants are taken in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.names import Position
from streams.log.log import Raw
from streams.memory import lanes as lanes_module
from streams.memory.lanes import AT_ONCE, BESIDE, OWN_BYTES, Lanes

PARTITIONS = 3
Log = list[list[str]]
"""Of each partition the tenants of its records, in order."""


def row(offset: int, tenant: str) -> Raw:
    return Raw(Position(0, offset), tenant.encode(), b"", 0)


class Reader:
    """Reads a log into lanes and takes records in, as a feed does; checks what they say."""

    def __init__(self, log: Log) -> None:
        self.log, self.lanes = log, Lanes(dict.fromkeys(range(PARTITIONS), 0))
        self.done: set[tuple[int, int]] = set()
        self.order: list[tuple[str, int, int]] = []
        self.begun: tuple[dict[int, int], int] | None = None
        """Where records are read again, and how often a tenant had been put off before."""
        self.due: list[tuple[int, int]] | None = None

    def read(self, *counts: int) -> None:
        """So many more records of each partition."""
        ends = dict(self.lanes.read)
        for partition, count in enumerate(counts):
            first = ends[partition]
            ends[partition] = min(len(self.log[partition]), first + count)
            for offset in range(first, ends[partition]):
                tenant = self.log[partition][offset]
                self.lanes.add(tenant, partition, row(offset, tenant))
        self.lanes.read_up_to(ends)

    def work(self, most: int) -> None:
        if taken := self.lanes.take(most):
            after = self.lanes.positions_after_taken()
            for partition, one in taken:
                self._apply(partition, one.offset)
            self.lanes.applied()
            assert after == self.lanes.positions
        self.check()

    def work_all(self) -> None:
        for _ in range(200):
            self.work(3)
            self.work_again(3)

    def work_again(self, most: int) -> None:
        """One of the three steps that take in what was put off, beside the others."""
        if self.begun is None:
            if self.lanes.again:
                self.begun = dict(self.lanes.again), self.lanes.times_put_off
            return
        at, times = self.begun
        if self.due is None and self.lanes.times_put_off != times:
            self.begun = None
        elif self.due is None:
            ends = {p: min(at[p] + most, len(self.log[p])) for p in at}
            self.due = [
                (p, offset)
                for p in at
                for offset in range(at[p], ends[p])
                if self.lanes.is_due_again(self.log[p][offset], p, offset)
            ]
            self.begun = {p: min(end, self.lanes.read[p]) for p, end in ends.items()}, times
        else:
            for partition, offset in self.due:
                self._apply(partition, offset)
            self.lanes.applied_again(at, times)
            self.begun = self.due = None
        self.check()

    def _apply(self, partition: int, offset: int) -> None:
        if (partition, offset) not in self.done:
            self.done.add((partition, offset))
            self.order.append((self.log[partition][offset], partition, offset))

    def check(self) -> None:
        for partition, position in self.lanes.positions.items():
            assert all((partition, offset) in self.done for offset in range(position))
        for tenant in {tenant for tenants in self.log for tenant in tenants}:
            if self.lanes.has(tenant, dict(self.lanes.read)):
                assert {
                    (p, offset)
                    for p, tenants in enumerate(self.log)
                    for offset in range(self.lanes.read[p])
                    if tenants[offset] == tenant
                } <= self.done


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "OWN_BYTES", 4 * BESIDE)


@given(
    log=st.lists(st.lists(st.sampled_from("aaaab" + "cd"), max_size=40), min_size=3, max_size=3),
    steps=st.lists(
        st.integers(-12, -1) | st.integers(1, 12) | st.tuples(*[st.integers(0, 12)] * PARTITIONS),
        max_size=60,
    ),
)
def test_each_tenants_records_come_in_order_and_all_of_them(
    log: Log, steps: list[int | tuple[int, ...]]
) -> None:
    reader = Reader(log)
    for step in steps:
        if not isinstance(step, int):
            reader.read(*step)
        elif step > 0:
            reader.work(step)
        else:
            reader.work_again(-step)
    reader.read(*map(len, log))
    reader.work_all()
    assert reader.lanes.positions == {p: len(tenants) for p, tenants in enumerate(log)}
    assert reader.lanes.is_empty and not reader.lanes.again
    for tenant in "abcd":
        for partition in range(PARTITIONS):
            own = [offset for name, p, offset in reader.order if (name, p) == (tenant, partition)]
            assert own == sorted(own) and len(own) == log[partition].count(tenant)


def test_a_tenant_with_few_records_is_next_whatever_others_have() -> None:
    lanes = Lanes({0: 0, 1: 0})
    for offset in range(1_000):
        lanes.add("noisy", 0, row(offset, "noisy"))
    lanes.add("quiet", 1, row(0, "quiet"))
    lanes.read_up_to({0: 1_000, 1: 1})
    assert lanes.is_put_off("noisy") and not lanes.has("quiet", {0: 1_000, 1: 1})
    assert [one.row.offset for one in lanes.take(25)] == [0]
    lanes.applied()
    assert lanes.has("quiet", {0: 1_000, 1: 1}) and not lanes.has("noisy", {0: 1_000})
    assert lanes.positions == {0: 0, 1: 1}, "what was put off does not count as taken in"


def test_who_reads_again_ahead_of_the_first_reader_passes_over_nobody() -> None:
    reader = Reader([["a"] * 6 + ["b"] * 6, ["b"] * 2, []])
    reader.read(6, 0, 0)
    assert reader.lanes.is_put_off("a")
    for _ in range(3):  # it goes over the second partition, where "b" is not put off yet
        reader.work_again(3)
    reader.read(6, 2, 0)
    assert reader.lanes.is_put_off("b")
    reader.work_all()
    assert reader.lanes.positions == {0: 12, 1: 2, 2: 0}
    assert len(reader.done) == 14


def test_who_is_put_off_while_records_are_read_again_is_not_passed_over() -> None:
    reader = Reader([["a"] * 6 + ["b"] * 6, ["b"] * 2, []])
    reader.read(6, 2, 0)
    for _ in range(2):  # it has read the second partition, where "b" waits
        reader.work_again(3)
    reader.read(6, 0, 0)
    assert reader.lanes.is_put_off("b")
    reader.work_again(3)
    assert reader.lanes.again[1] == 0
    reader.work_all()
    assert reader.lanes.positions == {0: 12, 1: 2, 2: 0}
    assert len(reader.done) == 14


def test_tenants_take_turns_of_a_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "OWN_BYTES", OWN_BYTES)
    lanes = Lanes({0: 0})
    for offset in range(100):
        lanes.add("noisy", 0, row(offset, "noisy"))
    lanes.add("quiet", 0, row(100, "quiet"))
    first = [one.row.key for one in lanes.take(2 * AT_ONCE)]
    assert first == [b"noisy"] * AT_ONCE + [b"quiet"] + [b"noisy"] * (AT_ONCE - 1)


def test_no_more_is_read_while_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "ALL_BYTES", 10 * BESIDE)
    lanes = Lanes({0: 0})
    for offset in range(10):
        assert not lanes.is_full
        lanes.add(f"t{offset}", 0, row(offset, f"t{offset}"))
    assert lanes.is_full
    lanes.take(1)
    assert not lanes.is_full
