"""Metadata in every version: partition leaders, with the broker addresses of the client's listener."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import metadata
from cordwood.cluster.metadata.commands import BeginControlledShutdown, BrokerId, CreateTopic, Endpoint, RegisterBroker
from cordwood.cluster.metadata.features import SUPPORTED

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
FLIGHTS, OTHER = UUID(int=1), UUID(int=2)


def with_topics(**options: Any) -> AdminFixture:
    admin = AdminFixture(brokers=2, **options)
    admin.propose(CreateTopic(FLIGHTS, "flights", ((ONE, TWO), (TWO, ONE))))
    admin.propose(CreateTopic(OTHER, "other", ((ONE,),)))
    return admin


@pytest.fixture
def two() -> AdminFixture:
    """Return two brokers with two topics."""
    return with_topics()


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def codes(response: Any) -> list[tuple[str | None, ErrorCode]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", metadata.KEY.versions)
def test_every_version_has_leaders_and_addresses(two: AdminFixture, version: int) -> None:
    response = two.ask(metadata, version, topics=named("flights"))
    assert [(row.node_id, row.host, row.port) for row in response.brokers] == [(1, "host-1", 9092), (2, "host-2", 9092)]
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == ("flights", ErrorCode.none)
    rows = [(row.partition_index, row.leader_id, row.replica_nodes, row.isr_nodes) for row in topic.partitions]
    assert rows == [(0, 1, (1, 2), (1, 2)), (1, 2, (2, 1), (2, 1))]
    if version >= 1:
        assert response.controller_id == 1
        assert response.brokers[0].rack == "rack-1"
        assert not topic.is_internal
    if version >= 2:
        assert response.cluster_id == "test-cluster"
    if version >= 7:
        assert {row.leader_epoch for row in topic.partitions} == {0}
    if version >= 10:
        assert topic.topic_id == FLIGHTS


@pytest.mark.parametrize("version", metadata.KEY.versions)
def test_no_list_asks_for_all_topics_and_an_empty_one_for_none(two: AdminFixture, version: int) -> None:
    all_topics = [("flights", ErrorCode.none), ("other", ErrorCode.none)]
    assert codes(two.ask(metadata, version, topics=())) == ([] if version else all_topics)
    if version:
        assert codes(two.ask(metadata, version, topics=None)) == all_topics


def test_each_listener_gets_its_own_addresses(two: AdminFixture) -> None:
    response = two.ask(metadata, 12, listener="LAN", topics=None)
    assert [(row.host, row.port) for row in response.brokers] == [("lan-1", 9093), ("lan-2", 9093)]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)])
def test_a_leader_that_the_listener_does_not_reach_is_not_named(
    two: AdminFixture, version: int, code: ErrorCode
) -> None:
    two.propose(RegisterBroker(TWO, UUID(int=2), (Endpoint("LAN", "lan-2", 9093),), levels=SUPPORTED))
    response = two.ask(metadata, version, topics=named("flights"))
    assert [row.node_id for row in response.brokers] == [1]
    partitions = response.topics[0].partitions
    assert [(row.error_code, row.leader_id) for row in partitions] == [(ErrorCode.none, 1), (code, -1)]


@pytest.mark.parametrize("version", range(12, 14))
def test_topics_are_found_by_id(two: AdminFixture, version: int) -> None:
    topics = [{"topic_id": OTHER, "name": None}, {"topic_id": UUID(int=9), "name": None}]
    response = two.ask(metadata, version, topics=topics)
    assert [(row.name, row.topic_id, row.error_code) for row in response.topics] == [
        ("other", OTHER, ErrorCode.none),
        (None, UUID(int=9), ErrorCode.unknown_topic_id),
    ]


@pytest.mark.parametrize("version", range(10, 12))
def test_versions_10_and_11_have_ids_but_do_not_take_them(two: AdminFixture, version: int) -> None:
    named_too = [{"topic_id": OTHER, "name": name} for name in (None, "flights")]
    response = two.ask(metadata, version, topics=named_too)
    assert codes(response) == [("", ErrorCode.invalid_request), ("flights", ErrorCode.invalid_request)]


@pytest.mark.parametrize("version", metadata.KEY.versions)
def test_a_missing_topic_is_created_and_in_the_same_answer(version: int) -> None:
    admin = with_topics(num_partitions=3)
    (topic,) = admin.ask(metadata, version, topics=named("new"), allow_auto_topic_creation=True).topics
    assert (topic.name, topic.error_code) == ("new", ErrorCode.none)
    assert len(topic.partitions) == 3
    assert all(row.leader_id in (1, 2) and row.error_code is ErrorCode.none for row in topic.partitions)
    admin.close()


def test_a_topic_is_not_created_against_the_clients_will(two: AdminFixture) -> None:
    response = two.ask(metadata, 12, topics=named("new"), allow_auto_topic_creation=False)
    assert codes(response) == [("new", ErrorCode.unknown_topic_or_partition)]
    assert "new" not in two.image.topics_by_name


def test_a_topic_is_not_created_against_the_settings() -> None:
    admin = AdminFixture(auto_create_topics_enable=False)
    response = admin.ask(metadata, 12, topics=named("new"), allow_auto_topic_creation=True)
    assert codes(response) == [("new", ErrorCode.unknown_topic_or_partition)]
    admin.close()


def test_internal_topics_are_never_created_by_asking(two: AdminFixture) -> None:
    response = two.ask(metadata, 12, topics=named("__consumer_offsets"), allow_auto_topic_creation=True)
    assert codes(response) == [("__consumer_offsets", ErrorCode.unknown_topic_or_partition)]
    two.propose(CreateTopic(UUID(int=5), "__consumer_offsets", ((ONE,),)))
    assert two.ask(metadata, 12, topics=named("__consumer_offsets")).topics[0].is_internal


def test_invalid_names_are_distinguished_from_unknown_ones(two: AdminFixture) -> None:
    response = two.ask(metadata, 12, topics=named("a b", "", "new"), allow_auto_topic_creation=True)
    assert codes(response) == [
        ("a b", ErrorCode.invalid_topic_exception),
        ("", ErrorCode.invalid_topic_exception),
        ("new", ErrorCode.none),
    ]


def test_a_topic_that_cannot_have_its_replicas_is_not_there() -> None:
    admin = AdminFixture(default_replication_factor=3)
    response = admin.ask(metadata, 12, topics=named("new"), allow_auto_topic_creation=True)
    assert codes(response) == [("new", ErrorCode.invalid_replication_factor)]
    admin.close()


def test_a_name_that_comes_twice_is_answered_once(two: AdminFixture) -> None:
    response = two.ask(metadata, 12, topics=named("flights", "flights", "new", "new"), allow_auto_topic_creation=True)
    assert codes(response) == [("flights", ErrorCode.none), ("new", ErrorCode.none)]


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_returned_on_request(two: AdminFixture, version: int) -> None:
    quiet = two.ask(metadata, version, topics=named("flights"))
    asks = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    reported = two.ask(metadata, version, topics=named("flights"), **asks)
    assert quiet.topics[0].topic_authorized_operations == -(1 << 31)
    assert reported.topics[0].topic_authorized_operations == 0b110111111000
    if version in range(8, 11):
        assert reported.cluster_authorized_operations == 0b1111110100000
        assert quiet.cluster_authorized_operations == -(1 << 31)


def test_replicas_on_brokers_that_are_gone_are_offline(two: AdminFixture) -> None:
    partitions = two.ask(metadata, 12, topics=named("flights")).topics[0].partitions
    assert [row.offline_replicas for row in partitions] == [(), ()]


def test_all_of_ten_thousand_partitions_are_listed(admin: AdminFixture) -> None:
    for at in range(10):
        admin.propose(CreateTopic(UUID(int=100 + at), f"t{at}", ((ONE,),) * 1000))
    response = admin.ask(metadata, 12, topics=None)
    assert sum(len(topic.partitions) for topic in response.topics) == 10_000


def test_a_partition_without_a_leader_has_none(two: AdminFixture) -> None:
    two.fence(1)
    response = two.ask(metadata, 12, topics=named("flights", "other"))
    assert ([row.node_id for row in response.brokers], response.controller_id) == ([2], 2)
    flights, other = response.topics
    assert [(row.error_code, row.leader_id, row.leader_epoch) for row in flights.partitions] == [
        (ErrorCode.none, 2, 1),
        (ErrorCode.none, 2, 0),
    ]
    assert [(row.isr_nodes, row.offline_replicas) for row in flights.partitions] == [((2,), (1,))] * 2
    (row,) = other.partitions
    assert (row.error_code, row.leader_id, row.isr_nodes) == (ErrorCode.leader_not_available, -1, (1,))
    assert (row.replica_nodes, row.offline_replicas) == ((1,), (1,))


def test_a_broker_that_is_about_to_stop_still_serves(two: AdminFixture) -> None:
    two.propose(BeginControlledShutdown(ONE, two.image.brokers[ONE].epoch))
    response = two.ask(metadata, 12, topics=named("other"))
    assert [row.node_id for row in response.brokers] == [1, 2]
    assert [(row.leader_id, row.offline_replicas) for row in response.topics[0].partitions] == [(1, ())]


def test_a_topic_whose_replicas_are_not_alive_is_not_created() -> None:
    admin = AdminFixture(brokers=2, default_replication_factor=2)
    admin.fence(2)
    response = admin.ask(metadata, 12, topics=named("new"), allow_auto_topic_creation=True)
    assert codes(response) == [("new", ErrorCode.invalid_replication_factor)]
    admin.close()


def test_one_request_creates_so_many_topics_and_no_more() -> None:
    admin = AdminFixture(num_partitions=1)
    names = [f"new-{number}" for number in range(metadata.AUTO_CREATED_MAX + 50)]
    topics = admin.ask(metadata, 12, topics=named(*names), allow_auto_topic_creation=True).topics
    codes = [topic.error_code for topic in topics]
    assert codes.count(ErrorCode.unknown_topic_or_partition) == 50
    again = admin.ask(metadata, 12, topics=named(*names), allow_auto_topic_creation=True).topics
    assert all(topic.error_code is not ErrorCode.unknown_topic_or_partition for topic in again)
