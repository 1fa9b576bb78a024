"""DescribeTopicPartitions: topics in order of their names, in pages without a repetition."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import describe_topic_partitions
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic

ONE, TWO = BrokerId(1), BrokerId(2)


@pytest.fixture
def admin() -> Iterator[AdminFixture]:
    fixture = AdminFixture(brokers=2)
    for number, (name, partitions) in enumerate((("c", 2), ("a", 3), ("b", 1)), 1):
        fixture.propose(CreateTopic(UUID(int=number), name, ((ONE, TWO),) * partitions))
    yield fixture
    fixture.close()


def describe(admin: AdminFixture, *names: str, limit: int = 2000, after: Any = None, listener: str = "LAN") -> Any:
    cursor = after and {"topic_name": after.topic_name, "partition_index": after.partition_index}
    return admin.ask(
        describe_topic_partitions,
        0,
        listener=listener,
        topics=tuple({"name": name} for name in names),
        response_partition_limit=limit,
        cursor=cursor,
    )


def rows_of(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions]


def pages(admin: AdminFixture, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    response = describe(admin, *names, limit=limit)
    found = [rows_of(response)]
    while response.next_cursor is not None:
        response = describe(admin, *names, limit=limit, after=response.next_cursor)
        found.append(rows_of(response))
    return found


def test_every_version_has_all_of_a_topic(admin: AdminFixture) -> None:
    assert list(describe_topic_partitions.KEY.versions) == [0]
    response = describe(admin, "b")
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (
        ErrorCode.none,
        "b",
        UUID(int=3),
        False,
    )
    assert topic.topic_authorized_operations == 0b110111111000
    (row,) = topic.partitions
    assert (row.error_code, row.partition_index, row.leader_id, row.leader_epoch) == (ErrorCode.none, 0, 1, 0)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ((1, 2), (1, 2), ())
    assert (row.eligible_leader_replicas, row.last_known_elr) == ((), ())
    assert response.next_cursor is None


def test_all_topics_come_in_the_order_of_their_names(admin: AdminFixture) -> None:
    assert rows_of(describe(admin)) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


@pytest.mark.parametrize("names", [(), ("c", "b", "a", "c")])
def test_pages_have_every_partition_once(admin: AdminFixture, names: tuple[str, ...]) -> None:
    everything = rows_of(describe(admin))
    for limit in range(1, 8):
        found = pages(admin, *names, limit=limit)
        assert [row for page in found for row in page] == everything
        assert all(len(page) == limit for page in found[:-1])


def test_a_page_has_at_least_one_partition(admin: AdminFixture) -> None:
    assert [len(page) for page in pages(admin, limit=0)] == [1] * 6
    assert [len(page) for page in pages(admin, limit=-1)] == [1] * 6


def test_a_page_has_no_more_than_the_broker_allows(admin: AdminFixture) -> None:
    admin.propose(CreateTopic(UUID(int=9), "large", ((ONE,),) * 2500))
    assert [len(page) for page in pages(admin, "large", limit=1 << 30)] == [2000, 500]


def test_a_cursor_may_point_to_a_topic_that_is_gone(admin: AdminFixture) -> None:
    cursor = describe(admin, limit=3).next_cursor
    assert (cursor.topic_name, cursor.partition_index) == ("b", 0)
    admin.propose(CreateTopic(UUID(int=8), "bb", ((ONE,),)))
    gone = type(cursor)(topic_name="aa", partition_index=7)
    assert rows_of(describe(admin, after=gone)) == [("b", 0), ("bb", 0), ("c", 0), ("c", 1)]


def test_a_cursor_has_to_be_among_the_topics(admin: AdminFixture) -> None:
    cursor = describe(admin, limit=3).next_cursor
    response = describe(admin, "a", "c", after=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.invalid_request),
        ("c", ErrorCode.invalid_request),
    ]
    assert rows_of(response) == []


def test_a_cursor_has_no_negative_partition(admin: AdminFixture) -> None:
    cursor = describe(admin, limit=3).next_cursor
    negative = type(cursor)(topic_name="b", partition_index=-1)
    response = describe(admin, "c", "b", after=negative)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("c", ErrorCode.invalid_request),
        ("b", ErrorCode.invalid_request),
    ]
    assert describe(admin, after=negative).topics == ()


def test_what_does_not_exist_is_listed_by_name(admin: AdminFixture) -> None:
    response = describe(admin, "b", "none", "a b", limit=1)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a b", ErrorCode.invalid_topic_exception),
        ("b", ErrorCode.none),
    ]
    (none,) = describe(admin, "b", "none", "a b", after=response.next_cursor).topics
    assert (none.name, none.error_code, none.topic_id) == ("none", ErrorCode.unknown_topic_or_partition, None)


def test_a_leader_that_this_listener_does_not_reach_is_none(admin: AdminFixture) -> None:
    (topic,) = describe(admin, "b", listener="ELSEWHERE").topics
    assert [row.leader_id for row in topic.partitions] == [-1]


def test_eligible_leaders_are_listed(admin: AdminFixture) -> None:
    admin.propose(CreateTopic(UUID(int=9), "d", ((ONE, TWO),), (("min.insync.replicas", "2"),)))
    admin.fence(1)
    ((row,),) = (topic.partitions for topic in describe(admin, "d").topics)
    assert (row.leader_id, row.isr_nodes, row.eligible_leader_replicas) == (2, (2,), (1,))
    assert row.offline_replicas == (1,)
    admin.fence(2)
    ((row,),) = (topic.partitions for topic in describe(admin, "d").topics)
    assert (row.leader_id, row.offline_replicas) == (-1, (1, 2))
