"""CreateTopics in every version: the created topics, and the refusals."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import create_topics


def topic(name: str, partitions: int = -1, replicas: int = -1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **fields}


def assigned(*brokers: tuple[int, ...], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + at, "broker_ids": replicas} for at, replicas in enumerate(brokers)]


def config(**values: str | None) -> list[dict[str, Any]]:
    return [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]


def code(admin: AdminFixture, *topics: dict[str, Any]) -> ErrorCode:
    (result,) = admin.ask(create_topics, 7, topics=topics).topics
    if result.error_code is not ErrorCode.none:
        assert result.error_message
        assert result.configs == ()
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", create_topics.KEY.versions)
def test_every_version_creates_a_topic(admin: AdminFixture, version: int) -> None:
    wanted = topic("flights", 3, 1, configs=config(retention_ms="5000"))
    (result,) = admin.ask(create_topics, version, topics=[wanted]).topics
    assert (result.name, result.error_code, result.error_message) == ("flights", ErrorCode.none, None)
    created = admin.image.topics_by_name["flights"]
    assert len(created.partitions) == 3
    assert created.configs == {"retention.ms": "5000"}
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {row.name: row for row in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
    if version >= 7:
        assert result.topic_id == created.id


def test_counts_that_are_left_open_come_from_the_settings() -> None:
    admin = AdminFixture(brokers=3, num_partitions=4, default_replication_factor=2)
    assert code(admin, topic("flights")) is ErrorCode.none
    partitions = admin.image.topics_by_name["flights"].partitions
    assert [len(set(partition.replicas)) for partition in partitions] == [2, 2, 2, 2]
    admin.close()


@pytest.mark.parametrize("version", create_topics.KEY.versions)
def test_validation_alone_creates_nothing(admin: AdminFixture, version: int) -> None:
    (result,) = admin.ask(create_topics, version, topics=[topic("flights", 2, 1)], validate_only=True).topics
    assert result.error_code is ErrorCode.none
    assert not admin.image.topics_by_name
    if version >= 7:
        assert result.topic_id is None
    assert code(admin, topic("flights", 0)) is ErrorCode.invalid_partitions


def test_a_value_that_is_too_long_for_the_metadata(admin: AdminFixture) -> None:
    wanted = topic("flights", configs=config(leader_replication_throttled_replicas="1:1," * 9000))
    assert code(admin, wanted) is ErrorCode.invalid_request


def test_the_partitions_of_all_topics_of_a_request_are_counted_together() -> None:
    admin = AdminFixture(num_partitions=6_000)
    for asked in ([topic("a"), topic("b")], [topic("a"), topic("b", 6_000)], [topic("a"), topic("b", -2)]):
        results = admin.ask(create_topics, 7, topics=asked, validate_only=True).topics
        assert [result.error_code for result in results] == [ErrorCode.policy_violation] * 2
    for asked in ([topic("a")], [topic("a"), topic("b", assignments=assigned((1,)))]):
        results = admin.ask(create_topics, 7, topics=asked, validate_only=True).topics
        assert {result.error_code for result in results} == {ErrorCode.none}
    admin.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n"])
def test_a_name_that_cannot_be(admin: AdminFixture, name: str) -> None:
    assert code(admin, topic(name)) is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_the_brokers_own(admin: AdminFixture, name: str) -> None:
    assert code(admin, topic(name, 1, 1)) is ErrorCode.invalid_topic_exception


def test_a_name_that_is_taken(admin: AdminFixture) -> None:
    assert code(admin, topic("flights")) is ErrorCode.none
    assert code(admin, topic("flights")) is ErrorCode.topic_already_exists


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic("t", 0), ErrorCode.invalid_partitions),
        (topic("t", -2), ErrorCode.invalid_partitions),
        (topic("t", 1, 0), ErrorCode.invalid_replication_factor),
        (topic("t", 1, -2), ErrorCode.invalid_replication_factor),
        (topic("t", 1, 4), ErrorCode.invalid_replication_factor),
        (topic("t", 10_001), ErrorCode.policy_violation),
        (topic("t", 1, assignments=assigned((1,))), ErrorCode.invalid_request),
        (topic("t", -1, 1, assignments=assigned((1,))), ErrorCode.invalid_request),
        (topic("t", assignments=assigned((1,), first=1)), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned((1,), first=-1)), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned((1,)) * 2), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned(())), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned((1, 1))), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned((9,))), ErrorCode.invalid_replica_assignment),
        (topic("t", assignments=assigned((1, 2), (3,))), ErrorCode.invalid_replica_assignment),
        (topic("t", configs=config(no_such="1")), ErrorCode.invalid_config),
        (topic("t", configs=config(retention_ms="soon")), ErrorCode.invalid_config),
        (topic("t", configs=config(retention_ms=None)), ErrorCode.invalid_config),
        (topic("t", configs=config(cleanup_policy="burn")), ErrorCode.invalid_config),
    ],
)
def test_what_cannot_be_is_said_by_its_code(wanted: dict[str, Any], expected: ErrorCode) -> None:
    admin = AdminFixture(brokers=3)
    assert code(admin, wanted) is expected
    assert not admin.image.topics_by_name
    admin.close()


def test_replicas_are_where_they_were_assigned() -> None:
    admin = AdminFixture(brokers=3)
    rows = list(reversed(assigned((1, 2), (2, 3), (3, 1))))
    assert code(admin, topic("flights", assignments=rows)) is ErrorCode.none
    partitions = admin.image.topics_by_name["flights"].partitions
    assert [partition.replicas for partition in partitions] == [(1, 2), (2, 3), (3, 1)]
    admin.close()


def test_replicas_are_given_only_to_brokers_that_are_alive() -> None:
    admin = AdminFixture(brokers=3)
    admin.fence(3)
    assert code(admin, topic("a", 6, 2)) is ErrorCode.none
    held = {replica for partition in admin.image.topics_by_name["a"].partitions for replica in partition.replicas}
    assert held == {1, 2}
    assert code(admin, topic("b", 1, 3)) is ErrorCode.invalid_replication_factor
    assert code(admin, topic("c", assignments=assigned((3,)))) is ErrorCode.invalid_replica_assignment
    assert code(admin, topic("d", assignments=assigned((3, 1)))) is ErrorCode.none
    assert admin.image.topics_by_name["d"].partitions[0].leader == 1
    admin.close()


def test_a_name_that_comes_twice_is_answered_once_and_not_created(admin: AdminFixture) -> None:
    response = admin.ask(create_topics, 7, topics=[topic("a"), topic("b"), topic("a")])
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("a", ErrorCode.invalid_request),
        ("b", ErrorCode.none),
    ]
    assert list(admin.image.topics_by_name) == ["b"]


def test_topic_ids_are_as_java_clients_want_them(admin: AdminFixture) -> None:
    admin.ask(create_topics, 7, topics=[topic(f"t{at}") for at in range(20)])
    ids = set(admin.image.topics_by_id)
    assert len(ids) == 20
    assert ids.isdisjoint({UUID(int=0), UUID(int=1)})


def test_no_topics_are_answered_with_none(admin: AdminFixture) -> None:
    assert admin.ask(create_topics, 7, topics=[]).topics == ()


def test_a_thousand_topics_at_once(admin: AdminFixture) -> None:
    response = admin.ask(create_topics, 7, topics=[topic(f"t{at}", 1, 1) for at in range(1000)])
    assert {row.error_code for row in response.topics} == {ErrorCode.none}
    assert len(admin.image.topics_by_name) == 1000
