"""What is said of partitions that are short of replicas."""

from __future__ import annotations

from typing import Any

from streams.log.replication import faults_of


def partition(number: int, leader: int, isr: list[int]) -> dict[str, Any]:
    return {"partition": number, "leader": leader, "replicas": [1, 2, 3], "isr": isr}


def topic(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"topic": "t.events", "partitions": list(partitions)}


def test_of_a_topic_with_all_its_replicas_nothing_is_said() -> None:
    assert (
        faults_of(topic(partition(0, 1, [1, 2, 3]), partition(1, 2, [3, 2, 1])), 2, {1, 2, 3}) == []
    )


def test_one_broker_down_leaves_partitions_under_replicated() -> None:
    assert faults_of(topic(partition(0, 1, [1, 2]), partition(1, 2, [1, 2, 3])), 2, {1, 2}) == [
        (
            (
                "topic t.events: partition 0 is under-replicated, one more failure may stop appends:"
                " broker 3 is down, to be started"
            ),
            {0},
        )
    ]


def test_the_gravest_comes_first_and_each_names_its_partitions() -> None:
    found = faults_of(
        topic(
            partition(0, 1, [1, 2]),
            partition(1, -1, [3]),
            partition(2, 1, [1]),
            partition(3, 1, [1]),
        ),
        2,
        {1},
    )
    assert found == [
        (
            (
                "topic t.events: partition 1 is offline, without a leader: nothing can be read or"
                " appended: brokers 2, 3 are down, to be started"
            ),
            {1},
        ),
        (
            (
                "topic t.events: partitions 2, 3 are held by fewer than min.insync.replicas=2"
                " brokers in sync: nothing can be appended: brokers 2, 3 are down, to be started"
            ),
            {2, 3},
        ),
        (
            (
                "topic t.events: partition 0 is under-replicated, one more failure may stop"
                " appends: brokers 2, 3 are down, to be started"
            ),
            {0},
        ),
    ]


def test_where_all_brokers_live_their_disks_are_named() -> None:
    ((sentence, _),) = faults_of(topic(partition(0, 1, [1])), 2, {1, 2, 3})
    assert sentence.endswith("check the brokers' disks and logs")


def test_of_many_partitions_the_first_are_named() -> None:
    ((sentence, those),) = faults_of(
        topic(*(partition(n, 1, [1, 2]) for n in range(20))), 2, {1, 2}
    )
    assert "partitions 0, 1, 2, 3, 4, 5, 6, 7 and 12 more are" in sentence
    assert len(those) == 20
