"""DescribeQuorum in every version: the quorum of one, with the figures of its journal."""

from typing import Any
from uuid import UUID

import pytest
from admin_fixture import NOW_MS, AdminFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import describe_quorum
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic


def describe(admin: AdminFixture, version: int, topic: str = "__cluster_metadata", *partitions: int) -> Any:
    wanted = tuple({"partition_index": index} for index in partitions or (0,))
    return admin.ask(describe_quorum, version, topics=({"topic_name": topic, "partitions": wanted},))


@pytest.mark.parametrize("version", describe_quorum.VERSIONS)
def test_every_version_tells_of_the_one_voter(admin: AdminFixture, version: int) -> None:
    for number in range(3):
        admin.propose(CreateTopic(UUID(int=number + 1), f"topic-{number}", ((BrokerId(1),),)))
    response = describe(admin, version)
    ((partition,),) = (topic.partitions for topic in response.topics)
    assert (response.error_code, partition.error_code) == (ErrorCode.none, ErrorCode.none)
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    # Its name, a broker, and three topics.
    assert partition.high_watermark == admin.image.index == 5
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (1, 5, ())
    if version >= 1:
        assert voter.last_caught_up_timestamp == NOW_MS
    if version >= 2:
        (node,) = response.nodes
        assert node.node_id == 1
        assert [(at.name, at.host, at.port) for at in node.listeners] == [
            ("PLAINTEXT", "host-1", 9092),
            ("LAN", "lan-1", 9093),
        ]


@pytest.mark.parametrize("version", describe_quorum.VERSIONS)
def test_there_is_no_other_quorum(admin: AdminFixture, version: int) -> None:
    for response in (
        describe(admin, version, "flights"),
        describe(admin, version, "__cluster_metadata", 1),
        describe(admin, version, "__cluster_metadata", 0, 1),
    ):
        rows = [partition for topic in response.topics for partition in topic.partitions]
        assert {row.error_code for row in rows} == {ErrorCode.unknown_topic_or_partition}
        assert {row.current_voters for row in rows} == {()}
